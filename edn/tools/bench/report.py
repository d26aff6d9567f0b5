"""Timing rules, progress line and result tables of the benchmarks."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, TypeVar

from rich.console import Console
from rich.status import Status
from rich.table import Table

from edn.tools.console import show_json, show_table


def interleaved(
    runs: Mapping[str, Callable[[], object]], *, repeats: int, at_least: float
) -> dict[str, float]:
    """Returns the seconds of each run: the median over `repeats` rounds that include every run.

    A run is repeated for at least `at_least` seconds per round, so that a short run is not measured cold.
    Rounds interleave, so a slow moment of the machine slows all runs. The clock is the thread's CPU time, so
    other programs do not count.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            count, began = 0, time.thread_time()
            while not count or time.thread_time() - began < at_least:
                run()
                count += 1
            taken[name].append((time.thread_time() - began) / count)
    return {name: median(times) for name, times in taken.items()}


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Returns the median of the pairwise ratios: a slow moment of the machine slows both of a pair."""
    return median(one / other for one, other in zip(over, under, strict=True))


async def run_pairs(
    count: int,
    alone: Callable[[int], Awaitable[T]],
    beside: Callable[[int], Awaitable[T]],
    progress: Progress,
    what: str = "",
) -> tuple[list[T], list[T]]:
    """Alternates two kinds of rounds and returns their results, without pair 0, which warms up."""
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


def save(figure: Any, file: Path | BinaryIO, dpi: int = 110) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(file, format="png", dpi=dpi)
    pyplot.close(figure)


def machine() -> str:
    """Returns processor, number of cores, system and Python version."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


class Progress:
    """A progress line on the terminal; silent without one."""

    def __init__(self) -> None:
        self._status: Status | None = Console(stderr=True).status("starting") if sys.stderr.isatty() else None

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, what: str) -> None:
        if self._status is not None:
            self._status.update(what)


T = TypeVar("T")

#: a template of the result `r`, or a function of the result
Cell = str | Callable[[Any], str]
#: names of cells, which may be templates too, and their contents
Cells = Sequence[tuple[str, Cell]]
Show = Callable[..., None]


def facts(title: Cell, *cells: tuple[str, Cell]) -> Show:
    """Returns the `show` of a benchmark with one table per result: a line per cell."""

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
    """Returns the `show` of a benchmark with one table: a column per cell.

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
    """Returns a result for `--json`: fields and properties of a dataclass."""
    if isinstance(result, list):
        return [to_json(one) for one in result]
    if not is_dataclass(result) or isinstance(result, type):
        return result
    properties = [name for name, kind in vars(type(result)).items() if isinstance(kind, property)]
    return {**asdict(result), **{name: getattr(result, name) for name in properties}}


def _draw(results: Sequence[Any]) -> None:
    """Prints the histograms of results."""
    console = Console()
    for result in results:
        for distribution in getattr(result, "distributions", ()):
            console.print()
            console.print(distribution)


def print_rows(title: str, columns: Cells, results: Sequence[Any]) -> None:
    """Prints results as rows of a table."""
    print_table(
        title, [name for name, _ in columns], [[fill(cell, r) for _, cell in columns] for r in results]
    )


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table, with the machine below it."""
    table = Table(title=title, caption=machine())
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    show_table(table)
