"""One index of a million subscriptions in four dimensions: the cost of loading, matching and changes.

Pauses are measured from outside: a thread matches one event after the other while the index is rebuilt, and
the longest match is the pause. On Linux the time that a runnable thread waits for a processor is subtracted,
because it depends on other programs.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from edn.arrays import Floats
from edn.index.bitmap import BitmapMatcher
from edn.tools.bench.report import Progress, facts, interleaved
from edn.tools.bench.workloads import uniform_points, uniform_rectangles

DIMENSIONS = 4


@dataclass(slots=True)
class Result:
    """Times are CPU times, so that other programs do not count."""

    subscriptions: int
    dimensions: int
    load_seconds: float = 0.0
    index_bytes: int = 0
    #: growth of the process while loading, without the rectangles themselves
    peak_bytes: int = 0
    us_per_event: float = 0.0
    found_per_event: float = 0.0
    #: changes one by one, and 1,000 at a time
    insert_us: float = 0.0
    insert_batch_us: float = 0.0
    delete_us: float = 0.0
    delete_batch_us: float = 0.0
    #: of all threads, per change, including all merging
    settled_us: float = 0.0
    #: the longest match: at rest, and during a complete rebuild
    longest_quiet_ms: float = 0.0
    longest_rebuild_ms: float = 0.0
    rebuild_seconds: float = 0.0


show = facts(
    "One large index",
    ("subscriptions, dimensions", "{r.subscriptions:,}, {r.dimensions}"),
    ("load in one call", "{r.load_seconds:.2f} s"),
    ("memory of the index", lambda r: f"{r.index_bytes / 1e6:.0f} MB"),
    ("peak while loading", lambda r: f"{r.peak_bytes / 1e6:.0f} MB"),
    ("match", "{r.us_per_event:.1f} µs per event"),
    ("found", "{r.found_per_event:,.0f} per event"),
    ("insert one, delete one", "{r.insert_us:.1f} µs, {r.delete_us:.1f} µs"),
    ("the same, 1,000 per call", "{r.insert_batch_us:.2f} µs, {r.delete_batch_us:.2f} µs"),
    ("a change, all merging included", "{r.settled_us:.2f} µs"),
    ("longest event, index at rest", "{r.longest_quiet_ms:.1f} ms"),
    ("longest event during a rebuild", "{r.longest_rebuild_ms:.1f} ms"),
    ("that rebuild", "{r.rebuild_seconds:.2f} s"),
)


def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    """Measures in the order of the fields."""
    count, changes, events = (20_000, 2_000, 20) if quick else (1_000_000, 100_000, 500)
    rng = np.random.default_rng(seed)
    lo, hi = uniform_rectangles(rng, count + 2 * changes, DIMENSIONS)
    points = uniform_points(rng, events, DIMENSIONS)
    matcher = BitmapMatcher(DIMENSIONS)
    result = Result(count, DIMENSIONS)

    progress.say(f"loading {count:,} subscriptions")
    with _most(_growth, 0.001) as peak:
        began = time.thread_time()
        matcher.insert(np.arange(count), lo[:count], hi[:count])
        result.load_seconds = time.thread_time() - began
    result.index_bytes, result.peak_bytes = matcher.nbytes, int(peak[0])

    progress.say("matching")
    seconds = interleaved({"match": lambda: matcher.match(points)}, repeats=5, at_least=0.0)["match"]
    result.us_per_event = 1e6 * seconds / events
    result.found_per_event = len(matcher.match(points)[1]) / events
    with _most(lambda: _event_seconds(matcher, points)) as longest:
        time.sleep(0.05 if quick else 2.0)
    result.longest_quiet_ms = 1e3 * longest[0]

    progress.say("inserting and deleting")
    began = time.process_time()
    single = min(changes, 20_000)

    def inserting(first: int) -> Callable[[int, int], None]:
        return lambda a, b: matcher.insert(np.arange(first + a, first + b), lo[a:b], hi[a:b])

    result.insert_us = _each(single, 1, inserting(count))
    result.insert_batch_us = _each(changes, 1000, inserting(count + single))
    result.delete_us = _each(single, 1, lambda a, b: matcher.delete(np.arange(a, b)))
    gone = single + changes
    result.delete_batch_us = _each(
        changes, 1000, lambda a, b: matcher.delete(np.arange(single + a, single + b))
    )
    matcher.wait_for_merges()
    result.settled_us = 1e6 * (time.process_time() - began) / (2 * gone)

    progress.say("rebuilding")
    with _most(lambda: _event_seconds(matcher, points)) as longest:
        began = time.perf_counter()
        # More than the share that triggers the rebuild of a segment.
        matcher.delete(np.arange(gone, gone + int(0.35 * count)))
        matcher.wait_for_merges()
        result.rebuild_seconds = time.perf_counter() - began
    result.longest_rebuild_ms = 1e3 * longest[0]
    return result


def _each(count: int, batch: int, change: Callable[[int, int], None]) -> float:
    """Returns the microseconds per row of `count` changes, `batch` per call."""
    began = time.thread_time()
    for start in range(0, count, batch):
        change(start, min(count, start + batch))
    return 1e6 * (time.thread_time() - began) / count


@contextmanager
def _most(observe: Callable[[], Callable[[], float]], pause: float = 0.0) -> Iterator[list[float]]:
    """Observes again and again in another thread; `[0]` is the maximum.

    `observe` is called in that thread and returns the function to call.
    """
    most = [0.0]
    done = threading.Event()

    def watch() -> None:
        look = observe()
        while not done.wait(pause):
            most[0] = max(most[0], look())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()


def _event_seconds(matcher: BitmapMatcher, points: Floats) -> Callable[[], float]:
    """Returns a function that matches the next event and returns its seconds."""
    waited, row = _run_queue_clock(), itertools.cycle(range(len(points)))

    def match() -> float:
        at = next(row)
        waits, began = waited(), time.perf_counter()
        matcher.match(points[at : at + 1])
        return time.perf_counter() - began - (waited() - waits)

    return match


def _run_queue_clock() -> Callable[[], float]:
    """Returns a clock of the time that this thread waits for a processor; 0 if the system has none."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    if not path.exists():
        return lambda: 0.0
    return lambda: int(path.read_bytes().split()[1]) / 1e9


def _growth() -> Callable[[], float]:
    """Returns a function that returns the growth of the process in bytes since now."""
    process = psutil.Process()
    before = process.memory_info().rss
    return lambda: process.memory_info().rss - before
