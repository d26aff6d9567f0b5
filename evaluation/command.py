"""The command `edn evaluate`."""

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
from evaluation.experiment import Experiment, Scale, judge
from evaluation.results import Record

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from evaluation.suites import Suite

app = typer.Typer(
    name="evaluate",
    help="Run the published experiments on this code.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of results, figures and pages."""

    results: Path
    figures: Path
    pages: Path

    @classmethod
    def under(cls, folder: Path) -> Places:
        return cls(folder / "results", folder / "figures", folder)

    @classmethod
    def committed(cls) -> Places:
        docs = _ROOT / "docs"
        return cls(_ROOT / "evaluation" / "results", docs / "figures", docs)

    def page(self, suite: Suite) -> Path:
        return self.pages / suite.page


@app.command()
def evaluate(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments; siena is the second evaluation. Default: all of the first but live ones.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: minutes for all experiments (default).")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Sizes near the published ones: most of an hour.")
    ] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="Tiny sizes: checks that experiments run.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds; the default depends on the experiment.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Include experiments that start a network.")] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Run nothing; write figures and page from stored results.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results, figures and page; for --full and --render the repository's own."
        ),
    ] = None,
    animate: Annotated[
        bool,
        typer.Option("--animate", help="Run nothing; write a page in which SIENA's messages spread."),
    ] = False,
    scenario: Annotated[
        Path | None,
        typer.Option(help="Run nothing else; simulate a scenario file of SIENA and print its costs."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Run experiments, store and draw their results, and write the page that judges every claim."""
    from evaluation.suites import EVERY, NAMED, SUITES

    try:
        if sum((quick, full, tiny)) > 1:
            raise InvalidInput("--quick, --full and --tiny are mutually exclusive")
        if seeds is not None and seeds < 1:
            raise InvalidInput(f"--seeds must be 1 or more, got {seeds}")
        chosen = choose(names or [], live)
        if listing:
            for one in EVERY:
                typer.echo(f"{one.name:20} {one.line}: {one.title}")
            for name, those in NAMED.items():
                typer.echo(f"{name:20} {', '.join(one.name for one in those)}")
            return
        if animate or scenario is not None:
            _play(names or [], animate, scenario, seeds or 1, out, json)
            return
        _check_installed()
        scale: Scale = "full" if full else "tiny" if tiny else "quick"
        places = Places.under(out) if out else None
        if places is None:
            places = Places.committed() if full or render else Places.under(Path("evaluation-results"))
        records = [] if render else _run(chosen, scale, seeds, places)
        suites = [
            suite
            for suite in SUITES
            if (render and not names) or any(one in suite.experiments for one in chosen)
        ]
        found = [(suite, publish(places, suite, [] if render else chosen)) for suite in suites]
    except EdnError as error:
        fail(str(error), USAGE)
    if json:
        show_json(records)
        return
    for suite, (kept, missing) in found:
        _show([(one, record) for one, record in kept if render or one in chosen])
        if missing:
            say(f"not run: {', '.join(one.name for one in missing)}")
        say(f"{places.page(suite)}")


def _play(
    names: list[str], animate: bool, scenario: Path | None, seeds: int, out: Path | None, json: bool
) -> None:
    """Writes the animated page, or runs a scenario file, or both."""
    from evaluation.siena.animation import write_page
    from evaluation.siena.command import run_scenario

    if names != ["siena"]:
        raise InvalidInput(f"--animate and --scenario must follow siena, got {' '.join(names) or 'nothing'}")
    if scenario is not None:
        run_scenario(scenario, seeds, json=json)
    if animate:
        say(str(write_page((out or Path("evaluation-results")) / "siena.html")))


def _check_installed() -> None:
    """Checks for optional packages before minutes are spent."""
    for name, package in (("matplotlib", "matplotlib"), ("sklearn", "scikit-learn")):
        if find_spec(name) is None:
            raise InvalidInput(f'{package} is not installed; run `pip install "edn[spark]"`')


def choose(names: list[str], live: bool) -> list[Experiment]:
    from evaluation.suites import EDN, EVERY, NAMED

    known = {one.name: (one,) for one in EVERY} | NAMED
    for name in names:
        if name not in known:
            raise InvalidInput(f'experiment "{name}" does not exist; known experiments: {", ".join(known)}')
    if names:
        return list({one.name: one for name in names for one in known[name]}.values())
    return [one for one in EDN.experiments if live or not one.live]


def _run(chosen: list[Experiment], scale: Scale, seeds: int | None, places: Places) -> list[Record]:
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
    places: Places, suite: Suite, drawn: list[Experiment]
) -> tuple[list[tuple[Experiment, Record]], list[Experiment]]:
    """Writes a suite's page from all stored results, and the figures in `drawn`, or all if it is empty."""
    from evaluation import document, figures, results

    kept: list[tuple[Experiment, Record]] = []
    missing: list[Experiment] = []
    for one in suite.experiments:
        record = results.read(one, places.results)
        if record is None:
            missing.append(one)
            continue
        kept.append((one, record))
        if not drawn or one in drawn:
            figures.draw(one.draw, record.outcomes, places.figures / f"{one.name}.png")
    document.write(places.page(suite), places.figures, kept, missing, suite.head)
    return kept, missing


def _show(kept: list[tuple[Experiment, Record]]) -> None:
    from evaluation.document import ours, published

    table = Table("", "claim", "published", "ours", "verdict")
    for one, record in kept:
        for claim in one.claims:
            first = judge(claim, record.outcomes)[0]
            table.add_row(one.name, claim.text, published(claim), ours(claim, first), first.verdict)
    show_table(table)


if __name__ == "__main__":
    app()
