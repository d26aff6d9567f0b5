"""The command line of the experiments: `edn evaluate …`."""

from __future__ import annotations

import sys
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


if __name__ == "__main__":
    app()
