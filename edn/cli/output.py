"""Output of the commands: one result as text or JSON, tables, progress.

Results go to standard output, messages and progress to standard error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.tools.console import REFUSED, USAGE, compact, fail, readable, say, show_json, show_table

if TYPE_CHECKING:
    from rich.table import Table

    from edn.client import Client, Subscription, moving

JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]

#: seconds between two requests for the state of a repartition
POLL_SECONDS = 0.3
#: seconds to wait for the hand-over after the last migration
HANDOVER_SECONDS = 30.0


def show(json: bool, value: Any, *lines: str) -> None:
    """Prints a result: the value as JSON, or the lines."""
    if json:
        show_json(value)
    else:
        for line in lines:
            typer.echo(line)


def make_table(headings: Sequence[str], rows: Iterable[Sequence[Any]], right: Collection[str] = ()) -> Table:
    """Builds a table without borders; columns in `right` are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    for row in rows:
        # As text, not as Rich's markup: "[true]" in a filter would vanish.
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def show_rows(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[str] = (),
    *,
    none: str | None = None,
) -> None:
    """Prints a table; `none` is said instead of a table without rows."""
    listed = list(rows)
    if not listed and none is not None:
        say(none)
        return
    show_table(make_table(headings, listed, right))


def for_each(ids: Iterable[str], act: Callable[[str], None]) -> None:
    """Acts on each id, also after a refusal; reports refusals and exits with 1 if there were any."""
    from edn.client import ProblemError

    refused = False
    for id in ids:
        try:
            act(id)
        except ProblemError as problem:
            refused = True
            say(f"edn: {id}: {readable(problem)}")
    if refused:
        raise typer.Exit(REFUSED)


def confirm(question: str) -> bool:
    """Asks on a terminal; without one, the command fails."""
    if not sys.stdin.isatty():
        fail("cannot ask for confirmation without a terminal; pass --yes", USAGE)
    return typer.confirm(question, err=True)


def filter_text(filter: Any) -> str:
    """Formats a filter in its text form."""
    if filter is None:
        return "(everything)"
    from edn.errors import EdnError
    from edn.model.filter import Filter

    try:
        return Filter.parse(filter).to_text() or "(everything)"
    except EdnError:  # a filter of a newer network
        return compact(filter)


def condition_text(found: Subscription) -> str:
    """Formats the filter or the sequence of a subscription in one line."""
    if found.sequence is None:
        return filter_text(found.filter)
    return ", then ".join(f"{step.topic}: {filter_text(step.filter)}" for step in found.sequence)


def number(value: float | None, spec: str = ",") -> str:
    """Formats a number; empty for None."""
    return "" if value is None else format(value, spec)


@contextmanager
def show_progress(
    what: str, *, is_bytes: bool = False, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Yields a function that advances a progress bar; without a terminal nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich import progress as rich
    from rich.console import Console

    count = (rich.BarColumn(), rich.DownloadColumn()) if is_bytes else (rich.MofNCompleteColumn(),)
    columns = (rich.SpinnerColumn(), *count, rich.TimeElapsedColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


def follow(client: Client, started: moving.Repartition) -> moving.Repartition:
    """Waits until a repartition and its hand-overs have finished; Ctrl-C leaves it running."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from edn.client import moving

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("moving", total=started.total, note="")
        deadline: float | None = None
        while True:
            now = client.run(moving.repartition(started.id))
            note = now.waiting or (f"{now.unsettled:,} handing over" if now.unsettled else "")
            progress.update(task, completed=now.moved + now.skipped, total=now.total, note=note)
            if now.over:
                deadline = deadline or time.monotonic() + HANDOVER_SECONDS
                if now.state == "cancelled" or not now.unsettled or time.monotonic() > deadline:
                    return now
            time.sleep(POLL_SECONDS)
