"""Benchmarks of single parts, each a command of its own, and the seeded workloads that they share.

`app` is what `edn bench` runs. Nothing outside this package imports it but tests, the command line and
`evaluation` and `load`, for the workloads. The benchmarks are loaded by their commands only, because they
bring every numerical library that there is. One module has all the commands, which are little but flags.

A benchmark's `run` measures and returns what it found; `report` shows it, `histogram` what was taken often.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Measure single parts against their peers.", no_args_is_help=True)

_PLACEMENT = "evaluation.placement"

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Quick = Annotated[bool, typer.Option("--quick", help="Tiny sizes: shows that it runs, measures nothing.")]
Seed = Annotated[int, typer.Option("--seed", help="What the workload is drawn from.")]
Repeats = Annotated[int, typer.Option("--repeats", min=5, help="Interleaved repeats; their median counts.")]


@app.command("kernels")
def measure_kernels(
    as_json: Json = False, quick: Quick = False, seed: Seed = 1, repeats: Repeats = 5
) -> None:
    """Matching and routing beside R-trees, SQLite and numpy: same data, same events, one thread, one run."""
    from edn.bench import kernels as benchmark
    from edn.bench.report import Progress, show_many

    with Progress() as progress:
        results = benchmark.run(quick=quick, seed=seed, repeats=repeats, progress=progress)
    show_many("Kernels and their peers", benchmark.COLUMNS, results, as_json=as_json)


@app.command("scaling")
def measure_scaling(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the result into this PNG file.")] = None,
) -> None:
    """How matching grows with subscriptions (1,000 to 1,000,000), with dimensions, and with their kind."""
    from edn.bench import scaling as benchmark
    from edn.bench.report import Progress, show_many

    with Progress() as progress:
        results = benchmark.run(quick=quick, seed=seed, progress=progress)
    if plot is not None:
        benchmark.draw(results, plot)
    show_many("Scaling of the bitmap matcher", benchmark.COLUMNS, results, as_json=as_json)


@app.command("million")
def measure_million(as_json: Json = False, quick: Quick = False, seed: Seed = 1) -> None:
    """One index of a million subscriptions: loading, memory, matching, changes, pauses while it merges."""
    from edn.bench import million as benchmark
    from edn.bench.report import Progress, show_one

    with Progress() as progress:
        result = benchmark.run(quick=quick, seed=seed, progress=progress)
    show_one("One large index", result, as_json=as_json)


@app.command("publish")
def measure_publish(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    dimensions: Annotated[
        list[int] | None, typer.Option("--dimensions", help="Attributes; may be repeated.")
    ] = None,
    servers: Annotated[int, typer.Option("--servers", min=1)] = 10,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1, help="Per server.")] = 10_000,
    events: Annotated[int, typer.Option("--events", min=100, help="Per round.")] = 60_000,
    repeats: Annotated[int, typer.Option("--repeats", min=1)] = 3,
) -> None:
    """A whole network, from publishing to the committed outbox, beside a bare app that only decodes."""
    from edn.bench import publish as benchmark
    from edn.bench.report import Progress, print_table

    if quick:
        servers, subscriptions, events, repeats = 2, 20, 3000, 1
    costs = []
    with Progress() as progress:
        for width in dimensions or [8, 4]:
            costs.append(
                benchmark.run(
                    dimensions=width,
                    servers=servers,
                    subscriptions=subscriptions,
                    events=events,
                    seed=seed,
                    repeats=repeats,
                    progress=progress,
                )
            )
    if as_json:
        typer.echo(json.dumps([cost.to_json() for cost in costs], indent=2))
    else:
        for cost in costs:
            print_table("Publishing, end to end", ("", ""), cost.cells())


@app.command("placement")
def measure_placement(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="May be repeated; all by default.")
    ] = None,
    servers: Annotated[int, typer.Option("--servers", min=1)] = 10,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1, help="In all.")] = 100_000,
    dimensions: Annotated[int, typer.Option("--dimensions", min=1)] = 4,
    events: Annotated[int, typer.Option("--events", min=1)] = 4000,
    load_factor: Annotated[float, typer.Option("--load-factor", min=1)] = 1.5,
) -> None:
    """Online placement through a running network by each policy, beside the same policy in memory."""
    import msgspec

    from edn.bench.report import Progress, print_table

    # By name: it stands above this package, because it needs the policies themselves.
    benchmark = import_module(_PLACEMENT)
    if quick:
        servers, subscriptions, events = 2, 400, 300
    outcomes = []
    with Progress() as progress:
        for name in policy or (["rtree"] if quick else benchmark.POLICIES):
            outcomes.append(
                benchmark.run(
                    name,
                    servers=servers,
                    subscriptions=subscriptions,
                    dimensions=dimensions,
                    events=events,
                    load_factor=load_factor,
                    seed=seed,
                    progress=progress,
                )
            )
    if as_json:
        typer.echo(msgspec.json.encode(outcomes).decode())
    else:
        print_table("Placement", benchmark.COLUMNS, [outcome.cells() for outcome in outcomes])
    if not all(outcome.right for outcome in outcomes):
        raise typer.Exit(1)


@app.command("cuts")
def measure_cuts(
    as_json: Json = False,
    quick: Quick = False,
    seeds: Annotated[
        str, typer.Option("--seeds", help="What the workloads are drawn from, each number anew: 1,2,3,4,5.")
    ] = "1",
) -> None:
    """How many events every way to cut a summary lets through, and summaries of a few attributes."""
    import msgspec

    from edn.bench import cuts as benchmark
    from edn.bench.report import Progress, print_table

    try:
        chosen = [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{seeds!r} is no list of numbers like 1,2,3") from None
    with Progress() as progress:
        cuts, comparisons, selections = benchmark.run(quick=quick, seeds=chosen, progress=progress)
    if as_json:
        result = {
            "seeds": chosen,
            "cuts": cuts,
            "comparisons": [comparison.to_json() for comparison in comparisons],
            "selections": selections,
        }
        typer.echo(msgspec.json.encode(result).decode())
    else:
        print_table("Hit ratio by precision", benchmark.COLUMNS, [row.cells() for row in cuts])
        rows = [row.cells() for row in comparisons]
        title = "The default beside the best cut by level, difference ± standard error"
        print_table(title, benchmark.COMPARISON_COLUMNS, rows)
        rows = [row.cells() for row in selections]
        print_table("Precise summaries of a few attributes", benchmark.SELECTION_COLUMNS, rows)


@app.command("overload")
def measure_overload(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    servers: Annotated[int, typer.Option("--servers", min=1)] = 3,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Of overload.")] = 120,
) -> None:
    """Twice the measured capacity for two minutes: what is answered, what arrives, what memory is used."""
    from edn.bench import overload as benchmark
    from edn.bench.report import Progress, show_one

    if quick:
        servers, seconds = 1, 3
    with Progress() as progress:
        outcome = benchmark.run(
            servers=servers, seconds=seconds, probe_seconds=2 if quick else 15, seed=seed, progress=progress
        )
    show_one("Overload", outcome, as_json=as_json)
    if outcome.missing or outcome.unexpected or outcome.without_retry_after:
        raise typer.Exit(1)
    if not set(outcome.answers) <= {"202", "429", "503"}:
        raise typer.Exit(1)


@app.command("slowclients")
def measure_slowclients(
    as_json: Json = False,
    quick: Quick = False,
    clients: Annotated[int, typer.Option("--clients", min=1)] = 1000,
    pairs: Annotated[int, typer.Option("--pairs", min=1)] = 5,
    requests: Annotated[int, typer.Option("--requests", min=100, help="In each round.")] = 1500,
    rate: Annotated[float, typer.Option("--rate", help="Requests a second of the publisher.")] = 200,
) -> None:
    """Clients that send a byte a second: what they do to the 99th percentile of an ordinary publisher."""
    from edn.bench import slowclients as benchmark
    from edn.bench.report import Progress, show_one

    if quick:
        clients, pairs, requests = 50, 1, 200
    with Progress() as progress:
        outcome = benchmark.run(clients=clients, pairs=pairs, requests=requests, rate=rate, progress=progress)
    show_one("Slow clients", outcome, as_json=as_json)


@app.command("replay")
def measure_replay(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    servers: Annotated[int, typer.Option("--servers", min=1)] = 3,
    retained: Annotated[int, typer.Option("--retained", min=1000, help="Events that are kept.")] = 100_000,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Of live throughput, alone and beside.")] = 5,
) -> None:
    """New subscriptions among many retained events: how soon they hear of them, and what others notice."""
    from edn.bench import replay as benchmark
    from edn.bench.report import Progress, show_one

    seconds, subscriptions = 4.0, 10
    if quick:
        servers, retained, pairs, seconds, subscriptions = 1, 2000, 1, 0.5, 2
    with Progress() as progress:
        outcome = benchmark.run(
            servers=servers,
            retained=retained,
            subscriptions=subscriptions,
            pairs=pairs,
            seconds=seconds,
            seed=seed,
            progress=progress,
        )
    show_one("The past of new subscriptions", outcome, as_json=as_json)


@app.command("hosting")
def measure_hosting(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1)] = 1_000_000,
    dimensions: Annotated[int, typer.Option("--dimensions", min=1)] = 4,
) -> None:
    """One server process with a million subscriptions: storing, memory, matching, restarting."""
    from edn.bench import hosting as benchmark
    from edn.bench.report import Progress, show_one

    events = 2000
    if quick:
        subscriptions, events = 2000, 400
    with Progress() as progress:
        hosted = benchmark.run(
            subscriptions=subscriptions, dimensions=dimensions, events=events, seed=seed, progress=progress
        )
    show_one("One server", hosted, as_json=as_json)


@app.command("capacity")
def measure_capacity(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    servers: Annotated[int, typer.Option("--servers", min=1)] = 3,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1, help="Per server.")] = 3000,
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
    import msgspec

    from edn.bench import capacity as benchmark
    from edn.bench.report import Progress, print_table
    from edn.bench.saturation import Size

    size = Size(servers=servers, subscriptions=subscriptions, router=router)
    if quick:
        size, seconds, rounds = Size(servers=1, subscriptions=60, interval=0.2), 0.3, 1
    with Progress() as progress:
        result = benchmark.run(
            size=size,
            seconds=seconds,
            rounds=rounds,
            bytes_per_second=bytes_per_second,
            seed=seed,
            progress=progress,
        )
    if plot is not None:
        benchmark.draw(result, plot)
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        title = f"Capacity, {result.bytes_per_second / 1e6:.2f} MB/s outgoing"
        print_table(title, benchmark.COLUMNS, [row.cells() for row in result.rows])


@app.command("selftune")
def measure_selftune(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    mode: Annotated[str, typer.Option("--mode", help="model or paper.")] = "model",
    servers: Annotated[int, typer.Option("--servers", min=1)] = 3,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1, help="Per server.")] = 3000,
    seconds: Annotated[float, typer.Option("--seconds", min=0.5, help="Of each measurement.")] = 3.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Of all fixed precisions.")] = 1,
    adapting: Annotated[
        float, typer.Option("--adapting", min=1, help="Seconds that tuning may take.")
    ] = 36.0,
    wider: Annotated[float, typer.Option("--wider", help="The link's change, times its width.")] = 2.5,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the run into this PNG file.")] = None,
) -> None:
    """Self-tuning of a running network beside every fixed precision, through changes of events and link."""
    import msgspec

    from edn.bench import selftune as benchmark
    from edn.bench.report import Progress, print_table
    from edn.bench.saturation import Size

    size = Size(servers=servers, subscriptions=subscriptions)
    if quick:
        size, seconds, rounds = Size(servers=1, subscriptions=60, interval=0.2), 0.3, 1
        adapting = 1.0
    with Progress() as progress:
        outcome = benchmark.run(
            size=size,
            mode=mode,
            seconds=seconds,
            rounds=rounds,
            adapting=adapting,
            wider=wider,
            seed=seed,
            progress=progress,
        )
    if plot is not None:
        benchmark.draw(outcome, plot)
    if as_json:
        typer.echo(
            msgspec.json.encode({**msgspec.to_builtins(outcome), "passes": outcome.verdicts()}).decode()
        )
    else:
        rows = [situation.cells() for situation in outcome.situations]
        print_table(f"Self-tuning, mode {mode}", benchmark.COLUMNS, rows)
        for name, passes in outcome.verdicts().items():
            typer.echo(f"{name}: {'reaches' if passes else 'misses'} the marks")


@app.command("deadletters")
def measure_deadletters(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    letters: Annotated[int, typer.Option("--letters", min=1000)] = 1_000_000,
) -> None:
    """A million dead letters in one server: pages, single letters, resending, through the dispatcher."""
    from edn.bench import deadletters as benchmark
    from edn.bench.report import Progress, show_many

    calls = 50
    if quick:
        letters, calls = 2000, 5
    with Progress() as progress:
        times = benchmark.run(letters=letters, calls=calls, seed=seed, progress=progress)
    show_many(f"{letters:,} dead letters", benchmark.COLUMNS, times, as_json=as_json)


@app.command("isolation")
def measure_isolation(
    as_json: Json = False,
    quick: Quick = False,
    addresses: Annotated[int, typer.Option("--addresses", min=1)] = 50,
    events: Annotated[int, typer.Option("--events", min=1, help="Per round.")] = 40,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Events a second.")] = 4.0,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Of rounds.")] = 5,
) -> None:
    """Delivery to fifty addresses, alone and beside one that never answers and one that takes ten seconds."""
    from edn.bench import isolation as benchmark
    from edn.bench.report import Progress, show_one

    if quick:
        addresses, events, rate, pairs = 5, 5, 20.0, 1
    with Progress() as progress:
        outcome = benchmark.run(addresses=addresses, events=events, rate=rate, pairs=pairs, progress=progress)
    show_one("Isolation of addresses", outcome, as_json=as_json)


@app.command("moving")
def measure_moving(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    servers: Annotated[int, typer.Option("--servers", min=2)] = 10,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1, help="Per server.")] = 2000,
    dimensions: Annotated[int, typer.Option("--dimensions", min=1)] = 4,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Moves a second.")] = 300.0,
    events: Annotated[float, typer.Option("--events", min=0.1, help="Events a second.")] = 25.0,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Before, and after.")] = 20.0,
) -> None:
    """A plan applied under traffic: the time of publishing meanwhile, the hit ratio before and after."""
    from edn.bench import moving as benchmark
    from edn.bench.report import Progress, show_one

    if quick:
        servers, subscriptions, seconds = 2, 50, 2.0
    with Progress() as progress:
        outcome = benchmark.run(
            servers=servers,
            subscriptions=subscriptions,
            dimensions=dimensions,
            rate=rate,
            events=events,
            seconds=seconds,
            seed=seed,
            progress=progress,
        )
    show_one("A plan applied to a running network", outcome, as_json=as_json)


@app.command("dashboard")
def measure_dashboard(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    dashboards: Annotated[int, typer.Option("--dashboards", min=1)] = 3,
    servers: Annotated[int, typer.Option("--servers", min=1)] = 3,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1, help="Per server.")] = 200,
    rate: Annotated[float, typer.Option("--rate", min=100, help="Events a second.")] = 20_000.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Of all views, in turn.")] = 7,
    seconds: Annotated[float, typer.Option("--seconds", min=0.5, help="Of each turn.")] = 4.0,
) -> None:
    """What open dashboards cost the dispatcher under load: its CPU time an event, without and with them."""
    from edn.bench import dashboard as benchmark
    from edn.bench.report import Progress, show_one

    if quick:
        servers, subscriptions, rate, rounds, seconds = 1, 50, 1000.0, 1, 1.0
    with Progress() as progress:
        outcome = benchmark.run(
            servers=servers,
            subscriptions=subscriptions,
            dashboards=dashboards,
            rate=rate,
            rounds=rounds,
            seconds=seconds,
            seed=seed,
            progress=progress,
        )
    show_one("Open dashboards", outcome, as_json=as_json)


@app.command("bulk")
def measure_bulk(
    as_json: Json = False,
    quick: Quick = False,
    seed: Seed = 1,
    servers: Annotated[int, typer.Option("--servers", min=1)] = 4,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1)] = 1_000_000,
) -> None:
    """Subscriptions imported, exported, imported into another network and exported again: equal, how fast."""
    from edn.bench import bulk as benchmark
    from edn.bench.report import Progress, show_one

    if quick:
        servers, subscriptions = 2, 2000
    with Progress() as progress:
        outcome = benchmark.run(servers=servers, subscriptions=subscriptions, seed=seed, progress=progress)
    show_one("Subscriptions in bulk", outcome, as_json=as_json)
