"""`edn bench`: a command for each benchmark, declared by its flags.

The function of a command says which flags there are and what they mean; they are handed by name to `run` of
the module that is called like the command. So nothing that is slow to import is loaded before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from edn.errors import InvalidInput

app = typer.Typer(help="Measure single parts against their peers.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Quick = Annotated[bool, typer.Option("--quick", help="Tiny sizes: shows that it runs, measures nothing.")]
Seed = Annotated[int, typer.Option("--seed", help="What the workload is drawn from.")]
Repeats = Annotated[int, typer.Option("--repeats", min=5, help="Interleaved repeats; their median counts.")]
Servers = Annotated[int, typer.Option("--servers", min=1)]
PerServer = Annotated[int, typer.Option("--subscriptions", min=1, help="Per server.")]
Dimensions = Annotated[int, typer.Option("--dimensions", min=1)]

#: what a command's function says: what `run` gets instead of flags, or None for all of them as they are
Instead = Mapping[str, object] | None
Declared = Callable[..., Instead]


def _benchmark(
    *, module: str | None = None, quick: Mapping[str, object] | None = None, seeded: bool = True
) -> Callable[[Declared], Declared]:
    """Make a command of a function, with `--json`, `--quick` and, unless nothing is drawn, `--seed`.

    `module` is where the benchmark is, if not in this package under the command's name. `quick` is what
    `--quick` makes of the flags, and of what `run` takes beyond them; without it `run` takes `quick` itself.
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
                raise typer.BadParameter('matplotlib is not installed; `pip install "edn[bench]"` brings it')
            if quick is None:
                flags["quick"] = quickly
            elif quickly:
                flags |= quick
            try:
                with Progress() as progress:
                    result = benchmark.run(**flags, progress=progress)
            except InvalidInput as error:
                raise typer.BadParameter(error.detail) from None
            if plot is not None:
                benchmark.draw(result, plot)
            benchmark.show(result, as_json=as_json)
            # One that can be wrong, and not only slow, says whether it was right.
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
    """Matching and routing beside R-trees, SQLite and numpy: same data, same events, one thread, one run."""


@_benchmark()
def scaling(
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the result into this PNG file.")] = None,
) -> None:
    """How matching grows with subscriptions (1,000 to 1,000,000), with dimensions, and with their kind."""


@_benchmark()
def million() -> None:
    """One index of a million subscriptions: loading, memory, matching, changes, pauses while it merges."""


@_benchmark(quick={"servers": 2, "subscriptions": 20, "events": 3000, "repeats": 1})
def publish(
    dimensions: Annotated[
        list[int] | None, typer.Option("--dimensions", help="Attributes; may be repeated.")
    ] = None,
    servers: Servers = 10,
    subscriptions: PerServer = 10_000,
    events: Annotated[int, typer.Option("--events", min=100, help="Per round.")] = 60_000,
    repeats: Annotated[int, typer.Option("--repeats", min=1)] = 5,
) -> None:
    """A whole network, from publishing to the committed outbox, beside a bare app that only decodes."""


@_benchmark(
    module="evaluation.placement",
    quick={"servers": 2, "subscriptions": 400, "events": 300, "default": ["rtree"]},
)
def placement(
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="May be repeated; all by default.")
    ] = None,
    servers: Servers = 10,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1, help="In all.")] = 100_000,
    dimensions: Dimensions = 4,
    events: Annotated[int, typer.Option("--events", min=1)] = 4000,
    load_factor: Annotated[float, typer.Option("--load-factor", min=1)] = 1.5,
) -> None:
    """Online placement through a running network by each policy, beside the same policy in memory."""


@_benchmark(seeded=False)
def cuts(
    seeds: Annotated[
        str, typer.Option("--seeds", help="What the workloads are drawn from, each number anew: 1,2,3,4,5.")
    ] = "1",
) -> Instead:
    """How many events every way to cut a summary lets through, and summaries of a few attributes."""
    try:
        return {"seeds": [int(seed) for seed in seeds.split(",")]}
    except ValueError:
        raise typer.BadParameter(f"{seeds!r} is no list of numbers like 1,2,3") from None


@_benchmark(quick={"servers": 1, "seconds": 3, "probe_seconds": 2})
def overload(
    servers: Servers = 3,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Of overload.")] = 120,
) -> None:
    """Twice the measured capacity for two minutes: what is answered, what arrives, what memory is used."""


@_benchmark(seeded=False, quick={"clients": 50, "pairs": 1, "requests": 200})
def slowclients(
    clients: Annotated[int, typer.Option("--clients", min=1)] = 1000,
    pairs: Annotated[int, typer.Option("--pairs", min=1)] = 5,
    requests: Annotated[int, typer.Option("--requests", min=100, help="In each round.")] = 1500,
    rate: Annotated[float, typer.Option("--rate", help="Requests a second of the publisher.")] = 200,
) -> None:
    """Clients that send a byte a second: what they do to the 99th percentile of an ordinary publisher."""


@_benchmark(quick={"servers": 1, "retained": 2000, "pairs": 1, "seconds": 0.5, "subscriptions": 2})
def replay(
    servers: Servers = 3,
    retained: Annotated[int, typer.Option("--retained", min=1000, help="Events that are kept.")] = 100_000,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Of live throughput, alone and beside.")] = 5,
) -> None:
    """New subscriptions among many retained events: how soon they hear of them, and what others notice."""


@_benchmark(quick={"subscriptions": 2000, "events": 400})
def hosting(
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1)] = 1_000_000,
    dimensions: Dimensions = 4,
) -> None:
    """One server process with a million subscriptions: storing, memory, matching, restarting."""


@_benchmark(quick={"servers": 1, "subscriptions": 60, "interval": 0.2, "seconds": 0.3, "rounds": 1})
def capacity(
    servers: Servers = 3,
    subscriptions: PerServer = 3000,
    seconds: Annotated[float, typer.Option("--seconds", min=0.5, help="Of each measurement.")] = 6.5,
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 3,
    bytes_per_second: Annotated[
        float | None,
        typer.Option("--bytes-per-second", min=1000, help="Of the link; by default routing's match."),
    ] = None,
    router: Annotated[str, typer.Option("--router", help="bitmap or rtree.")] = "rtree",
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the curve into this PNG file.")] = None,
) -> None:
    """The sustainable rate of a running network at each precision, beside the throughput model's."""


@_benchmark(
    quick={"servers": 1, "subscriptions": 60, "interval": 0.2, "seconds": 0.3, "rounds": 1, "adapting": 1.0}
)
def selftune(
    mode: Annotated[str, typer.Option("--mode", help="model or paper.")] = "model",
    servers: Servers = 3,
    subscriptions: PerServer = 3000,
    seconds: Annotated[float, typer.Option("--seconds", min=0.5, help="Of each measurement.")] = 3.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Of all fixed precisions.")] = 1,
    adapting: Annotated[
        float, typer.Option("--adapting", min=1, help="Seconds that tuning may take.")
    ] = 36.0,
    wider: Annotated[float, typer.Option("--wider", help="The link's change, times its width.")] = 2.5,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the run into this PNG file.")] = None,
) -> None:
    """Self-tuning of a running network beside every fixed precision, through changes of events and link."""


@_benchmark(quick={"letters": 2000, "calls": 5})
def deadletters(
    letters: Annotated[int, typer.Option("--letters", min=1000)] = 1_000_000,
) -> None:
    """A million dead letters in one server: pages, single letters, resending, through the dispatcher."""


@_benchmark(seeded=False, quick={"addresses": 5, "events": 5, "rate": 20.0, "pairs": 1})
def isolation(
    addresses: Annotated[int, typer.Option("--addresses", min=1)] = 50,
    events: Annotated[int, typer.Option("--events", min=1, help="Per round.")] = 40,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Events a second.")] = 4.0,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Of rounds.")] = 5,
) -> None:
    """Delivery to fifty addresses, alone and beside one that never answers and one that takes ten seconds."""


@_benchmark(seeded=False)
def noisy(
    case: Annotated[
        list[str] | None,
        typer.Option("--case", help="hanging, unresolved, contains, xpath or topics; again for each."),
    ] = None,
    events: Annotated[int, typer.Option("--events", min=1, help="Of the quiet tenant, per round.")] = 40,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Of these a second.")] = 4.0,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Of rounds.")] = 5,
) -> None:
    """A quiet tenant alone and beside noise: addresses that hang, silent DNS, costly filters and topics."""


@_benchmark(seeded=False, quick={"cycles": 2, "per_cycle": 2, "topics": 20, "subtrees": 1, "settled": 1.0})
def topics(
    cycles: Annotated[int, typer.Option("--cycles", min=1)] = 20,
    per_cycle: Annotated[int, typer.Option("--per-cycle", min=1, help="Topics of one cycle.")] = 15,
    topics: Annotated[int, typer.Option("--topics", min=1, help="Of the subtree.")] = 1500,
    attributes: Annotated[int, typer.Option("--attributes", min=8, max=256)] = 256,
    subtrees: Annotated[int, typer.Option("--subtrees", min=1, help="Subscriptions to it.")] = 10,
) -> None:
    """Wide topics that come and go, and subscriptions to all of them: memory, and others' calls meanwhile."""


@_benchmark(quick={"servers": 2, "subscriptions": 50, "seconds": 2.0})
def moving(
    servers: Annotated[int, typer.Option("--servers", min=2)] = 10,
    subscriptions: PerServer = 2000,
    dimensions: Dimensions = 4,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Moves a second.")] = 300.0,
    events: Annotated[float, typer.Option("--events", min=0.1, help="Events a second.")] = 10.0,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Before, and after.")] = 40.0,
) -> None:
    """A plan applied under traffic: the time of publishing meanwhile, the hit ratio before and after."""


@_benchmark(quick={"servers": 1, "subscriptions": 50, "rate": 1000.0, "rounds": 1, "seconds": 1.0})
def dashboard(
    dashboards: Annotated[int, typer.Option("--dashboards", min=1)] = 3,
    servers: Servers = 3,
    subscriptions: PerServer = 200,
    rate: Annotated[float, typer.Option("--rate", min=100, help="Events a second.")] = 20_000.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Of all views, in turn.")] = 7,
    seconds: Annotated[float, typer.Option("--seconds", min=0.5, help="Of each turn.")] = 4.0,
) -> None:
    """What open dashboards cost the dispatcher under load: its CPU time an event, without and with them."""


@_benchmark(quick={"servers": 2, "subscriptions": 2000})
def bulk(
    servers: Servers = 4,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1)] = 1_000_000,
) -> None:
    """Subscriptions imported, exported, imported into another network and exported again: equal, how fast."""


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
        str, typer.Option("--systems", help="Some of edn, pg, redis, floor, separated by commas.")
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


def _numbers(kind: Callable[[str], Any], flag: str, text: str) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{flag} must be numbers separated by commas, got {text!r}") from None
