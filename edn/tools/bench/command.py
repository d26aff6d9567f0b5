"""`edn bench`: one command per benchmark, declared by its flags.

The function of a command declares the flags. They are passed by name to `run` of the module with the same
name, so slow imports happen only when a benchmark runs. `run` may be a coroutine function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, Signature, iscoroutine, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from edn.errors import InvalidInput

app = typer.Typer(help="Measure single parts and compare them with others.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quick = Annotated[bool, typer.Option("--quick", help="Tiny sizes: check that the benchmark runs.")]
Seed = Annotated[int, typer.Option(help="Seed of the workload.")]
Repeats = Annotated[int, typer.Option(min=5, help="Interleaved repeats; the median counts.")]
Servers = Annotated[int, typer.Option(min=1)]
PerServer = Annotated[int, typer.Option(min=1, help="Per server.")]
Dimensions = Annotated[int, typer.Option(min=1)]
Plot = Annotated[Path | None, typer.Option(help="Draw the result into this PNG file.")]

#: result of a command's function: arguments of `run` that replace flags, or None
Instead = Mapping[str, object] | None
Declared = Callable[..., Instead]


def _benchmark(
    *, module: str | None = None, quick: Mapping[str, object] | None = None, seeded: bool = True
) -> Callable[[Declared], Declared]:
    """Registers a function as a command with `--json`, `--quick` and, if `seeded`, `--seed`.

    `module`: the benchmark, if it is not the module of this package with the command's name. `quick`:
    arguments of `run` that `--quick` replaces; without it `run` has a parameter `quick`.
    """

    def register(declared: Declared) -> Declared:
        name = declared.__name__

        def command(as_json: bool, quickly: bool, **flags: Any) -> None:
            from edn.tools.bench.report import Progress

            benchmark = import_module(module or f"edn.tools.bench.{name}")
            own = {flag: value for flag, value in flags.items() if flag != "seed"}
            flags |= declared(**own) or {}
            plot = flags.pop("plot", None)
            if plot is not None and find_spec("matplotlib") is None:  # before minutes are spent
                raise typer.BadParameter('matplotlib is not installed; run `pip install "edn[bench]"`')
            if quick is None:
                flags["quick"] = quickly
            elif quickly:
                flags |= quick
            try:
                with Progress() as progress:
                    result = benchmark.run(**flags, progress=progress)
                    if iscoroutine(result):
                        result = asyncio.run(result)
            except InvalidInput as error:
                raise typer.BadParameter(error.detail) from None
            if plot is not None:
                benchmark.draw(result, plot)
            benchmark.show(result, as_json=as_json)
            # A benchmark that checks its results defines `right`.
            if hasattr(benchmark, "right") and not benchmark.right(result):
                raise typer.Exit(1)

        shared: list[tuple[str, Any, Any]] = [("as_json", Json, False), ("quickly", Quick, False)]
        shared += [("seed", Seed, 1)] if seeded else []
        keyword = Parameter.KEYWORD_ONLY
        ours = [Parameter(flag, keyword, default=value, annotation=kind) for flag, kind, value in shared]
        own = signature(declared, eval_str=True).parameters.values()
        parameters = [*ours, *(one.replace(kind=keyword) for one in own)]
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # as `inspect` reads it
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        app.command(name, help=declared.__doc__)(command)
        return declared

    return register


@_benchmark()
def kernels(repeats: Repeats = 5) -> None:
    """Compare matching and routing with R-trees, SQLite and numpy: same data and events, one thread."""


@_benchmark()
def scaling(plot: Plot = None) -> None:
    """Measure matching by number (1,000 to 1,000,000), dimensions and kind of subscriptions."""


@_benchmark()
def million() -> None:
    """Measure an index of a million subscriptions: loading, memory, matching, changes, pauses."""


@_benchmark(quick={"servers": 2, "subscriptions": 20, "events": 3000, "repeats": 1})
def publish(
    dimensions: Annotated[list[int] | None, typer.Option(help="Attributes; may be repeated.")] = None,
    servers: Servers = 10,
    subscriptions: PerServer = 10_000,
    events: Annotated[int, typer.Option(min=100, help="Per round.")] = 60_000,
    repeats: Annotated[int, typer.Option(min=1)] = 5,
    documents: Annotated[
        bool, typer.Option("--open", help="Compare documents of 2 KB, mostly undeclared, with flat events.")
    ] = False,
) -> None:
    """Compare a network, from publishing to the committed outbox, with a bare app that only decodes."""


@_benchmark(quick={"advertisements": 20, "events": 2_000, "repeats": 1})
def guard(
    advertisements: Annotated[int, typer.Option(min=1, help="Of the publisher.")] = 1_000,
    events: Annotated[int, typer.Option(min=100, help="Per round and topic.")] = 60_000,
    repeats: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Compare publishing to a topic that refuses unadvertised events with one that accepts all."""


@_benchmark(
    module="evaluation.live_placement",
    quick={"servers": 2, "subscriptions": 400, "events": 300, "default": ["rtree"]},
)
def placement(
    policy: Annotated[list[str] | None, typer.Option(help="May be repeated; all by default.")] = None,
    servers: Servers = 10,
    subscriptions: Annotated[int, typer.Option(min=1, help="In all.")] = 100_000,
    dimensions: Dimensions = 4,
    events: Annotated[int, typer.Option(min=1)] = 4000,
    load_factor: Annotated[float, typer.Option(min=1)] = 1.5,
) -> None:
    """Compare online placement in a running network with the same policy in memory."""


@_benchmark(seeded=False)
def cuts(
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas: 1,2,3,4,5.")] = "1",
) -> Instead:
    """Measure the hit ratio of every way to cut a summary, and of summaries of a few attributes."""
    try:
        return {"seeds": [int(seed) for seed in seeds.split(",")]}
    except ValueError:
        raise typer.BadParameter(f"--seeds must be integers separated by commas, got {seeds!r}") from None


@_benchmark(quick={"servers": 1, "seconds": 3, "probe_seconds": 2})
def overload(
    servers: Servers = 3,
    seconds: Annotated[float, typer.Option(min=1, help="Of overload.")] = 120,
) -> None:
    """Offer twice the measured capacity: count answers and arrivals, measure memory."""


@_benchmark(seeded=False, quick={"clients": 50, "pairs": 1, "requests": 200})
def slowclients(
    clients: Annotated[int, typer.Option(min=1)] = 1000,
    pairs: Annotated[int, typer.Option(min=1)] = 5,
    requests: Annotated[int, typer.Option(min=100, help="In each round.")] = 1500,
    rate: Annotated[float, typer.Option(help="Requests per second of the publisher.")] = 200,
) -> None:
    """Measure a publisher's 99th percentile beside clients that send one byte per second."""


@_benchmark(quick={"servers": 1, "retained": 2000, "pairs": 1, "seconds": 0.5, "subscriptions": 2})
def replay(
    servers: Servers = 3,
    retained: Annotated[int, typer.Option(min=1000, help="Retained events.")] = 100_000,
    pairs: Annotated[int, typer.Option(min=1, help="Rounds without and with replays.")] = 5,
) -> None:
    """Measure the replay of retained events to new subscriptions, and its effect on publishers."""


@_benchmark(quick={"subscriptions": 2000, "events": 400})
def hosting(
    subscriptions: Annotated[int, typer.Option(min=1)] = 1_000_000,
    dimensions: Dimensions = 4,
) -> None:
    """Measure one server with a million subscriptions: storing, memory, matching, restart."""


@_benchmark(quick={"servers": 1, "subscriptions": 60, "interval": 0.2, "seconds": 0.3, "rounds": 1})
def capacity(
    servers: Servers = 3,
    subscriptions: PerServer = 3000,
    seconds: Annotated[float, typer.Option(min=0.5, help="Of each measurement.")] = 6.5,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    bytes_per_second: Annotated[
        float | None,
        typer.Option(min=1000, help="Of the link; by default as fast as routing."),
    ] = None,
    router: Annotated[str, typer.Option(help="bitmap or rtree.")] = "rtree",
    plot: Plot = None,
) -> None:
    """Compare the sustainable rate of a network at each precision with the throughput model."""


@_benchmark(
    quick={"servers": 1, "subscriptions": 60, "interval": 0.2, "seconds": 0.3, "rounds": 1, "adapting": 1.0}
)
def selftune(
    mode: Annotated[str, typer.Option(help="model or paper.")] = "model",
    servers: Servers = 3,
    subscriptions: PerServer = 3000,
    seconds: Annotated[float, typer.Option(min=0.5, help="Of each measurement.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="Of all fixed precisions.")] = 1,
    adapting: Annotated[float, typer.Option(min=1, help="Seconds for the tuner to adapt.")] = 36.0,
    wider: Annotated[float, typer.Option(help="Factor by which the link is widened.")] = 2.5,
    plot: Plot = None,
) -> None:
    """Compare self-tuning with every fixed precision while events and link change."""


@_benchmark(quick={"letters": 2000, "calls": 5})
def deadletters(
    letters: Annotated[int, typer.Option(min=1000)] = 1_000_000,
) -> None:
    """Measure listing, reading and requeueing among a million dead letters."""


@_benchmark(seeded=False, quick={"addresses": 5, "events": 5, "rate": 20.0, "pairs": 1})
def isolation(
    addresses: Annotated[int, typer.Option(min=1)] = 50,
    events: Annotated[int, typer.Option(min=1, help="Per round.")] = 40,
    rate: Annotated[float, typer.Option(min=0.1, help="Events per second.")] = 4.0,
    pairs: Annotated[int, typer.Option(min=1, help="Of rounds.")] = 5,
) -> None:
    """Measure delivery to fifty addresses without and with two that hang."""


@_benchmark(seeded=False)
def noisy(
    case: Annotated[
        list[str] | None,
        typer.Option(help="hanging, unresolved, contains, xpath or topics; may be repeated."),
    ] = None,
    events: Annotated[int, typer.Option(min=1, help="Of the quiet tenant, per round.")] = 40,
    rate: Annotated[float, typer.Option(min=0.1, help="Events per second of the quiet tenant.")] = 4.0,
    pairs: Annotated[int, typer.Option(min=1, help="Of rounds.")] = 5,
) -> None:
    """Measure a quiet tenant beside a noisy one: hanging addresses, silent DNS, expensive filters, topics."""


@_benchmark(seeded=False, quick={"cycles": 2, "per_cycle": 2, "topics": 20, "subtrees": 1, "settled": 1.0})
def topics(
    cycles: Annotated[int, typer.Option(min=1)] = 20,
    per_cycle: Annotated[int, typer.Option(min=1, help="Topics of one cycle.")] = 15,
    topics: Annotated[int, typer.Option(min=1, help="Topics of the subtree.")] = 1500,
    attributes: Annotated[int, typer.Option(min=8, max=256)] = 256,
    subtrees: Annotated[int, typer.Option(min=1, help="Subscriptions to the subtree.")] = 10,
) -> None:
    """Create and delete wide topics: measure memory and the calls of other tenants."""


@_benchmark(quick={"servers": 2, "subscriptions": 50, "seconds": 2.0})
def moving(
    servers: Annotated[int, typer.Option(min=2)] = 10,
    subscriptions: PerServer = 2000,
    dimensions: Dimensions = 4,
    rate: Annotated[float, typer.Option(min=1, help="Migrations per second.")] = 300.0,
    events: Annotated[float, typer.Option(min=0.1, help="Events per second.")] = 10.0,
    seconds: Annotated[float, typer.Option(min=1, help="Of the phases before and after.")] = 40.0,
) -> None:
    """Apply a plan under traffic: measure publishing meanwhile, and the hit ratio before and after."""


@_benchmark(quick={"servers": 1, "subscriptions": 50, "rate": 1000.0, "rounds": 1, "seconds": 1.0})
def dashboard(
    dashboards: Annotated[int, typer.Option(min=1)] = 3,
    servers: Servers = 3,
    subscriptions: PerServer = 200,
    rate: Annotated[float, typer.Option(min=100, help="Events per second.")] = 20_000.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of all views.")] = 7,
    seconds: Annotated[float, typer.Option(min=0.5, help="Per view and round.")] = 4.0,
) -> None:
    """Measure the dispatcher's CPU time per event without and with open dashboards."""


@_benchmark(quick={"servers": 2, "subscriptions": 2000})
def bulk(
    servers: Servers = 4,
    subscriptions: Annotated[int, typer.Option(min=1)] = 1_000_000,
) -> None:
    """Import and export subscriptions through two networks: measure speed, compare the results."""


@_benchmark(
    module="edn.tools.bench.delivery.benchmark",
    quick={
        "addresses": [20],
        "rates": [20.0],
        "subscriptions": 200,
        "seconds": 1.0,
        "idle_seconds": 0.5,
        "flat_events": 200,
        "rounds": 1,
    },
)
def delivery(
    addresses: Annotated[
        str | None,
        typer.Option(
            "--addresses",
            help="Numbers of addresses, separated by commas; 1,200,1000,5000,10000, with --fairness 1000.",
        ),
    ] = None,
    systems: Annotated[
        str,
        typer.Option("--systems", help="Some of edn, edn-database, pg, redis, floor, separated by commas."),
    ] = "edn,pg,redis,floor",
    sink: Annotated[
        str, typer.Option("--sink", help="webhook, cloudevents, soap or sse; of the product only.")
    ] = "webhook",
    rates: Annotated[
        str, typer.Option("--rates", help="Single events per second, separated by commas.")
    ] = "10,50",
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Per rate.")] = 8.0,
    flat_events: Annotated[
        int, typer.Option("--flat-events", min=1, help="Events per flat-out measurement.")
    ] = 3000,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1)] = 10_000,
    servers: Servers = 2,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Of all systems, in turn.")] = 3,
    fairness: Annotated[
        bool, typer.Option("--fairness", help="Measure healthy addresses beside slow and dead ones instead.")
    ] = False,
) -> Instead:
    """Measure publish to arrival, beside peers on PostgreSQL and Redis and the least that a POST costs."""
    return {
        "addresses": _numbers(
            int, "--addresses", addresses or ("1000" if fairness else "1,200,1000,5000,10000")
        ),
        "systems": systems.split(","),
        "rates": _numbers(float, "--rates", rates),
    }


@_benchmark(module="edn.tools.bench.database.benchmark")
def database(
    parts: Annotated[
        str,
        typer.Option(
            "--parts", help="Some of append, apply, publish, delivery, dispatchers, separated by commas."
        ),
    ] = "append,apply,publish,delivery,dispatchers",
    servers: Servers = 10,
    subscriptions: PerServer = 10_000,
    events: Annotated[int, typer.Option("--events", min=100, help="Published per round.")] = 60_000,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Of both engines, in turn.")] = 3,
) -> Instead:
    """Compare PostgreSQL with a synchronous standby with SQLite, and several dispatchers with one."""
    return {"parts": parts.split(",")}


@_benchmark(module="edn.tools.bench.database.bloat", quick={"minutes": 0.1, "interval": 1.0})
def bloat(
    minutes: Annotated[float, typer.Option("--minutes", min=0.1)] = 5.0,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Events per second.")] = 200.0,
    interval: Annotated[float, typer.Option("--interval", min=1, help="Seconds between samples.")] = 10.0,
) -> None:
    """Publish and deliver on PostgreSQL: record sizes and dead rows of the tables, which must not grow."""


def _numbers(kind: Callable[[str], Any], flag: str, text: str) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{flag} must be numbers separated by commas, got {text!r}") from None
