"""The command line of the experiments: `edn evaluate …`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from edn.errors import EdnError, InvalidInput
from edn.tools.console import USAGE, fail, say, show_json, show_table
from evaluation.experiment import AnyExperiment, Scale
from evaluation.results import Record

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

app = typer.Typer(
    name="evaluate",
    help="Run the published experiments on this code.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Places:
    """Where results, figures and the document go."""

    results: Path
    figures: Path
    document: Path

    @classmethod
    def under(cls, folder: Path) -> Places:
        return cls(folder / "results", folder / "figures", folder / "evaluation.md")

    @classmethod
    def committed(cls) -> Places:
        """Those of the repository."""
        docs = _ROOT / "docs"
        return cls(_ROOT / "evaluation" / "results", docs / "figures", docs / "evaluation.md")


@app.command()
def evaluate(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Experiments; all but live ones by default.", show_default=False),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: minutes for all. The default.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Sizes near the published ones: most of an hour.")
    ] = False,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Shows that it runs; the figures mean nothing.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds; each experiment has its own.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Also those that start a network of their own.")
    ] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Run nothing; figures and page from what is kept.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="Name the experiments.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results, figures and page; the repository's own for --full and --render."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON, for programs.")] = False,
) -> None:
    """Run experiments, keep what they give as JSON, draw it, and write the page that judges every claim."""
    from evaluation.experiments import ALL, GROUPS

    try:
        if sum((quick, full, tiny)) > 1:
            raise InvalidInput("--quick, --full and --tiny exclude each other")
        chosen = choose(names or [], live)
        if listing:
            for one in ALL:
                typer.echo(f"{one.name:16} {one.line}: {one.title}")
            for name, those in GROUPS.items():
                typer.echo(f"{name:16} {', '.join(one.name for one in those)}")
            return
        _check_installed()
        scale: Scale = "full" if full else "tiny" if tiny else "quick"
        places = Places.under(out) if out else None
        if places is None:
            places = Places.committed() if full or render else Places.under(Path("evaluation-results"))
        records = [] if render else _run(chosen, scale, seeds, places)
        kept, missing = publish(places, [] if render else chosen)
    except EdnError as error:
        fail(str(error), USAGE)
    if json:
        show_json(records)
        return
    _show([(one, record) for one, record in kept if render or one in chosen])
    if missing:
        say(f"not run yet: {', '.join(one.name for one in missing)}")
    say(f"{places.document}")


def _check_installed() -> None:
    """What experiments and their figures need beyond the rest, before minutes are spent on them."""
    for name, package in (("matplotlib", "matplotlib"), ("sklearn", "scikit-learn")):
        if find_spec(name) is None:
            raise InvalidInput(f'{package} is not installed; `pip install "edn[spark]"` brings it')


def choose(names: list[str], live: bool) -> list[AnyExperiment]:
    from evaluation.experiments import ALL, GROUPS

    known = {one.name: (one,) for one in ALL} | GROUPS
    for name in names:
        if name not in known:
            raise InvalidInput(f'no experiment "{name}"; known are {", ".join(known)}')
    if names:
        return list({one.name: one for name in names for one in known[name]}.values())
    return [one for one in ALL if live or not one.live]


def _run(chosen: list[AnyExperiment], scale: Scale, seeds: int | None, places: Places) -> list[Record]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from evaluation import results

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    records = []
    with Progress(*columns, console=Console(stderr=True)) as bars:
        whole = bars.add_task("all", total=len(chosen), what="")
        for one in chosen:
            count = seeds or one.seeds[scale]
            bar = bars.add_task(one.name, total=1.0, what="")
            progress = partial(_update, bars, bar)
            record = results.run(one, scale, list(range(count)), progress)
            results.write(record, places.results)
            _update(bars, bar, 1, 1, f"{record.cpu_seconds:,.0f} s")
            bars.update(whole, advance=1)
            records.append(record)
    return records


def _update(bars: Progress, bar: TaskID, done: int, total: int, what: str) -> None:
    bars.update(bar, completed=done, total=total, what=what)


def publish(
    places: Places, drawn: list[AnyExperiment]
) -> tuple[list[tuple[AnyExperiment, Record]], list[AnyExperiment]]:
    """Figures and the page from all that is kept; `drawn` are the only figures to be drawn, none is all."""
    from evaluation import document, drawing, results
    from evaluation.experiments import ALL

    kept: list[tuple[AnyExperiment, Record]] = []
    missing: list[AnyExperiment] = []
    for one in ALL:
        record = results.read(one, places.results)
        if record is None:
            missing.append(one)
            continue
        kept.append((one, record))
        if not drawn or one in drawn:
            drawing.draw(one.draw, record.outcomes, places.figures / f"{one.name}.png")
    document.write(places.document, places.figures, kept, missing)
    return kept, missing


def _show(kept: list[tuple[AnyExperiment, Record]]) -> None:
    from evaluation.claims import judge
    from evaluation.document import ours, published

    table = Table("", "claim", "published", "ours", "verdict")
    for one, record in kept:
        for claim in one.claims:
            first = judge(claim, record.outcomes)[0]
            table.add_row(one.name, claim.text, published(claim), ours(claim, first), first.verdict)
    show_table(table)


if __name__ == "__main__":
    app()
