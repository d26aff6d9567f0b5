"""How benchmarks time, and how they tell: the clock's rules, a progress line, tables, the machine's name."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.status import Status
from rich.table import Table

from edn.bench.histogram import Distribution
from edn.cli.console import show_json, show_table


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


class Result(Protocol):
    def to_json(self) -> dict[str, Any]: ...

    def cells(self) -> Sequence[Any]: ...


@runtime_checkable
class Spread(Protocol):
    """A result that holds distributions; they are part of its JSON, and drawn for people."""

    @property
    def distributions(self) -> Sequence[Distribution]: ...


def show_one(title: str, result: Result, *, as_json: bool) -> None:
    """A result whose cells are (what, how much), or all of it for a program."""
    if as_json:
        show_json(result.to_json())
    else:
        print_table(title, ("", ""), result.cells())
        _draw([result])


def show_many(title: str, columns: Sequence[str], results: Sequence[Result], *, as_json: bool) -> None:
    """Results that are rows of one table."""
    if as_json:
        show_json([result.to_json() for result in results])
    else:
        print_table(title, columns, [result.cells() for result in results])
        _draw(results)


def _draw(results: Sequence[Result]) -> None:
    """The histograms of results that have any."""
    console = Console()
    for result in results:
        for distribution in result.distributions if isinstance(result, Spread) else ():
            console.print()
            console.print(distribution)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people, with the machine named below it."""
    table = Table(title=title, caption=machine())
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    show_table(table)
