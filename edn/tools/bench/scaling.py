"""Matching by number of subscriptions, by dimensions, and by kind of filters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edn.index.bitmap import BitmapMatcher
from edn.tools.bench.report import Progress, interleaved, new_axes, rows, save
from edn.tools.bench.workloads import Workload, market, uniform, zipf

SIZES = (1_000, 10_000, 100_000, 1_000_000)
DIMENSIONS = (2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Result:
    """One workload at one size."""

    workload: str
    dimensions: int
    subscriptions: int
    us_per_event: float
    found_per_event: float
    load_seconds: float
    bytes: int

    @property
    def ns_per_found(self) -> float:
        return 1000 * self.us_per_event / self.found_per_event if self.found_per_event else float("nan")


show = rows(
    "Scaling of the bitmap matcher",
    ("workload", "{r.workload}"),
    ("subscriptions", "{r.subscriptions:,}"),
    ("µs/event", "{r.us_per_event:.2f}"),
    ("found/event", "{r.found_per_event:,.1f}"),
    ("ns/found", "{r.ns_per_found:,.1f}"),
    ("load s", "{r.load_seconds:.2f}"),
    ("MB", lambda r: f"{r.bytes / 1e6:,.1f}"),
)


def run(*, quick: bool, seed: int, progress: Progress) -> list[Result]:
    """Measures every workload at every size."""
    workloads = [*(uniform(d) for d in DIMENSIONS), zipf(4, 1.0), market()]
    sizes = (200, 400) if quick else SIZES
    results = []
    for workload in workloads:
        for size in sizes:
            progress.say(f"{workload.name}: {size:,} subscriptions")
            # Few enough events that the answers stay below some tens of megabytes.
            events = 20 if quick else 1000 if size < 1_000_000 else 200
            results.append(measure(workload, size, events, seed=seed, turn=0.0 if quick else 0.05))
    return results


def measure(workload: Workload, subscriptions: int, events: int, *, seed: int, turn: float) -> Result:
    """Loads an index in one call and matches one batch again and again."""
    rng = np.random.default_rng(seed)
    lo, hi = workload.rectangles(rng, subscriptions)
    points = workload.points(rng, events)
    matcher = BitmapMatcher(workload.dimensions)
    began = time.process_time()
    matcher.insert(np.arange(subscriptions), lo, hi)
    matcher.wait_for_merges()
    loaded = time.process_time() - began
    seconds = interleaved({"match": lambda: matcher.match(points)}, repeats=5, at_least=turn)["match"]
    found = len(matcher.match(points)[1])
    return Result(
        workload=workload.name,
        dimensions=workload.dimensions,
        subscriptions=subscriptions,
        us_per_event=1e6 * seconds / events,
        found_per_event=found / events,
        load_seconds=loaded,
        bytes=matcher.nbytes,
    )


def draw(results: Sequence[Result], path: Path) -> None:
    """Draws time by subscriptions, one line per workload, and by dimensions, one line per size."""
    figure, (left, right) = new_axes(1, 2, 11, 4.5, sharey=True)
    for name in dict.fromkeys(result.workload for result in results):
        line = [result for result in results if result.workload == name]
        left.plot([r.subscriptions for r in line], [r.us_per_event for r in line], marker="o", label=name)
    left.set(xscale="log", yscale="log", xlabel="subscriptions", ylabel="µs per event, all ids found")
    even = [result for result in results if result.workload.startswith("uniform")]
    for size in sorted({result.subscriptions for result in even}):
        line = [result for result in even if result.subscriptions == size]
        right.plot(
            [r.dimensions for r in line], [r.us_per_event for r in line], marker="o", label=f"{size:,}"
        )
    right.set(xscale="log", xlabel="dimensions, uniform rectangles")
    right.set_xticks(DIMENSIONS, [str(d) for d in DIMENSIONS])
    right.minorticks_off()
    for axes in (left, right):
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize="small")
    save(figure, path, dpi=120)
