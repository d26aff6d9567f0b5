"""The command line of the experiments: `edn evaluate …`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from edn.errors import EdnError

app = typer.Typer(
    name="evaluate",
    help="Run the published experiments anew.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def evaluate() -> None:
    """Run the published experiments anew."""


@app.command("partitioning")
def partitioning(
    servers: Annotated[int, typer.Option(min=1, help="Servers.")] = 10,
    dimensions: Annotated[int, typer.Option(min=1, help="Attributes of an event.")] = 4,
    per_server: Annotated[int, typer.Option(min=1, help="Subscriptions a server, on average.")] = 10_000,
    distribution: Annotated[
        str, typer.Option(help="uniform; normal (events only), zipf (subscriptions only), zipf-both.")
    ] = "uniform",
    alpha: Annotated[float, typer.Option(help="Exponent of the Zipf-like law.")] = 1.0,
    seed: Annotated[
        list[int] | None, typer.Option(help="May be given several times; 0, 1, 2 by default.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="May be given several times; all by default.")
    ] = None,
    events: Annotated[int, typer.Option(min=1, help="Events that judge.")] = 4000,
    load_factor: Annotated[float, typer.Option(min=1.0, help="Largest load allowed ÷ average load.")] = 2.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Hit ratio and loads of every way of partitioning, on one workload."""
    import msgspec
    from rich.console import Console
    from rich.progress import Progress

    from evaluation.partitioning import METHODS, Setup
    from evaluation.partitioning import evaluate as run

    setup = Setup(
        servers=servers,
        dimensions=dimensions,
        per_server=per_server,
        events=events,
        distribution=distribution,
        alpha=alpha,
        seeds=tuple(seed) if seed else (0, 1, 2),
        load_factor=load_factor,
    )
    try:
        with Progress(console=Console(stderr=True)) as bars:
            task = bars.add_task("placing", total=None)
            results = run(
                setup,
                tuple(method) if method else tuple(METHODS),
                lambda done, total: bars.update(task, completed=done, total=total),
            )
    except (EdnError, ValueError) as error:
        typer.echo(f"edn: {error}", err=True)
        raise typer.Exit(2) from None
    if json:
        sys.stdout.write(msgspec.json.encode({"setup": setup, "results": results}).decode() + "\n")
        return
    from rich.table import Table

    table = Table("method", title=f"{distribution}, {dimensions} dimensions, {servers} × {per_server:,}")
    for column in ("hit ratio", "least", "greatest", "smallest load", "largest load", "÷ average", "CPU s"):
        table.add_column(column, justify="right")
    for one in results:
        table.add_row(
            one.method,
            f"{one.hit_ratio:.3f}",
            f"{one.least:.3f}",
            f"{one.greatest:.3f}",
            f"{one.smallest_load:,}",
            f"{one.largest_load:,}",
            f"{one.imbalance:.2f}",
            f"{one.seconds:.1f}",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@app.command("selftuning")
def selftuning(
    servers: Annotated[int, typer.Option(min=1, help="Servers.")] = 10,
    per_server: Annotated[int, typer.Option(min=2, help="Subscriptions a server.")] = 10_000,
    events: Annotated[int, typer.Option(min=100, help="Events that hit ratios are measured with.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of subscriptions, events and noise.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Noisy runs of each regime and start.")] = 5,
    cut: Annotated[str, typer.Option(help="How summaries are cut: waste or level.")] = "waste",
    plot: Annotated[Path | None, typer.Option(help="Draw the runs into this PNG file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Both self-tuning policies on a simulated network, with hit ratios from real summaries."""
    import msgspec
    from rich.console import Console

    from evaluation.selftuning import evaluate as run
    from evaluation.selftuning_curves import Setup
    from evaluation.selftuning_report import draw, print_result

    if cut not in ("waste", "level"):
        typer.echo(f'edn: no cut "{cut}"; known are waste, level', err=True)
        raise typer.Exit(2)
    setup = Setup(
        servers=servers,
        per_server=per_server,
        events=events,
        seed=seed,
        cut="level" if cut == "level" else "waste",
    )
    result = run(setup, seeds=seeds)
    if plot is not None:
        draw(result, plot)
    if json:
        sys.stdout.write(msgspec.json.encode({"setup": setup, "result": result}).decode() + "\n")
        return
    print_result(result, Console(width=None if sys.stdout.isatty() else 140))


if __name__ == "__main__":
    app()
