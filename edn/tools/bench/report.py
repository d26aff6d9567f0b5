"""How benchmarks time, and how they tell: the clock's rules, a progress line, tables, the machine's name."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, TypeVar

from rich.console import Console
from rich.status import Status
from rich.table import Table

from edn.tools.console import show_json, show_table


def interleaved(
    runs: Mapping[str, Callable[[], object]], *, repeats: int, at_least: float
) -> dict[str, float]:
    """Seconds that each run takes: the median of `repeats` rounds, in each of which all take their turn.

    In its turn a run is made as often as it takes to fill `at_least` seconds, so that a short one is not
    measured by its first, cold moment. Whatever slows the machine for a while slows all of them. The clock is
    that of the one thread that works: when other programs have the processor, it stands still.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            count, began = 0, time.thread_time()
            while True:
                run()
                count += 1
                elapsed = time.thread_time() - began
                if elapsed >= at_least:
                    break
            taken[name].append(elapsed / count)
    return {name: median(times) for name, times in taken.items()}


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Returns the median of the ratios, pair by pair: what slows the machine for a while slows both."""
    return median(one / other for one, other in zip(over, under, strict=True))


async def run_pairs(
    count: int,
    alone: Callable[[int], Awaitable[T]],
    beside: Callable[[int], Awaitable[T]],
    progress: Progress,
    what: str = "",
) -> tuple[list[T], list[T]]:
    """Runs two kinds of rounds in turn and returns what each gave; the first pair, number 0, warms up."""
    found: tuple[list[T], list[T]] = ([], [])
    for pair in range(count + 1):
        progress.say(f"{what}pair {pair} of {count}")
        for kind, run in zip(found, (alone, beside), strict=True):
            kind.append(await run(pair))
    return found[0][1:], found[1][1:]


def new_axes(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """Returns a figure for a PNG file, and its axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(rows, columns, figsize=(width, height), **options)


def save(figure: Any, path: Path, dpi: int = 110) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, dpi=dpi)
    pyplot.close(figure)


def machine() -> str:
    """The processor, its cores, and the Python that was measured with."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


class Progress:
    """A line on the terminal that says what is being measured; silent where there is no terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._status: Status | None = console.status("starting") if sys.stderr.isatty() else None

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, what: str) -> None:
        if self._status is not None:
            self._status.update(what)


T = TypeVar("T")

#: A template that gets the result as `r`, or a function of the result.
Cell = str | Callable[[Any], str]
#: names of cells, which may be templates, too, and their contents
Cells = Sequence[tuple[str, Cell]]
Show = Callable[..., None]


def facts(title: Cell, *cells: tuple[str, Cell]) -> Show:
    """Returns the `show` of a benchmark whose results are a table each: a line per cell."""

    def show_facts(result: Any, *, as_json: bool) -> None:
        if as_json:
            show_json(to_json(result))
            return
        for one in result if isinstance(result, list) else [result]:
            lines = [(fill(name, one), fill(cell, one)) for name, cell in cells]
            print_table(fill(title, one), ("", ""), lines)
            _draw([one])

    return show_facts


def rows(title: Cell, *columns: tuple[str, Cell], of: str = "") -> Show:
    """Returns the `show` of a benchmark whose results are rows of one table: a column per cell.

    The rows are the result itself, or its attribute `of`.
    """

    def show_rows(result: Any, *, as_json: bool) -> None:
        if as_json:
            show_json(to_json(result))
            return
        found = getattr(result, of) if of else result
        print_rows(fill(title, result), columns, found)
        _draw(found)

    return show_rows


def fill(cell: Cell, result: object) -> str:
    """Returns the text of a cell."""
    return cell.format(r=result) if isinstance(cell, str) else cell(result)


def to_json(result: Any) -> Any:
    """Returns a result for programs: its own `to_json`, or all of its fields."""
    if isinstance(result, list):
        return [to_json(one) for one in result]
    if hasattr(result, "to_json"):
        return result.to_json()
    return asdict(result) if is_dataclass(result) and not isinstance(result, type) else result


def _draw(results: Sequence[Any]) -> None:
    """Prints the histograms of results that have any."""
    console = Console()
    for result in results:
        for distribution in getattr(result, "distributions", ()):
            console.print()
            console.print(distribution)


def print_rows(title: str, columns: Cells, results: Sequence[Any]) -> None:
    """Prints results as rows of a table for people."""
    print_table(
        title, [name for name, _ in columns], [[fill(cell, r) for _, cell in columns] for r in results]
    )


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people, with the machine named below it."""
    table = Table(title=title, caption=machine())
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    show_table(table)
