"""The offline methods, which assign each row to one of N servers.

| method | parts | minimises |
|---|---|---|
| `rtree` | equal | bounding volumes, by the published top-down greedy split |
| `traffic` | equal | events of a sample that are sent to the servers, by the same split |
| `kmeans` | up to the capacity | distances of centres |
| `random` | equal | nothing: the baseline |
| `mincut` | up to the capacity | overlap between servers, on a graph of at most a few thousand vertices |

The same code runs in one process and on Spark, with different `Rows`; the centroids of K-means come from
scikit-learn in one process and from MLlib on Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edn.arrays import Bools, Floats, Ints
from edn.errors import InvalidInput
from partitioning import clustering, mincut
from partitioning.contents import Contents, EventSample
from partitioning.rows import Chunk, Rows, mixed
from partitioning.selection import Cut, select
from partitioning.split import Progress, Traffic, Volume, borders, split
from partitioning.survey import Assignment, Relabelled, survey

METHODS = ("rtree", "traffic", "kmeans", "random", "mincut")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOptions:
    method: str
    servers: int
    #: limit of subscriptions per server; None: twice the average, rounded up
    capacity: int | None = None
    #: network distance of each server, for the splits only; then part i is server i
    distances: Sequence[float] | None = None
    seed: int = 0


def check_method(name: str) -> None:
    if name not in METHODS:
        raise InvalidInput(f'method must be one of {", ".join(METHODS)}, got "{name}"')


def checked_capacity(options: PartitionOptions, count: int) -> int:
    """Return the capacity; raises `InvalidInput` if the options are impossible for `count` rows."""
    check_method(options.method)
    if options.servers < 1:
        raise InvalidInput(f"servers must be at least 1, got {options.servers}")
    if count < options.servers:
        raise InvalidInput(
            f"subscriptions must be at least as many as servers ({options.servers}), got {count}"
        )
    if options.distances is not None and len(options.distances) != options.servers:
        raise InvalidInput(
            f"distances must be as many as servers ({options.servers}), got {len(options.distances)}"
        )
    least = -(-count // options.servers)
    capacity = -(-2 * count // options.servers) if options.capacity is None else options.capacity
    if capacity < least:
        raise InvalidInput(
            f"capacity must be at least {least} for {count} subscriptions on {options.servers} servers, "
            f"got {capacity}"
        )
    return capacity


def partition(
    rows: Rows, options: PartitionOptions, events: Floats, progress: Progress | None = None
) -> Assignment:
    """Assign every row to a part 0 … servers - 1; `events` is a sample, (m, d)."""
    capacity = checked_capacity(options, rows.count)
    if options.method == "rtree":
        return split(rows, options.servers, Volume.over(rows.space, options.distances), progress)
    if options.method == "traffic":
        return split(rows, options.servers, Traffic.over(rows.space, events, options.distances), progress)
    if options.method == "kmeans":
        centroids = rows.centroids(options.servers, options.seed)
        return clustering.assign(rows, centroids, capacity)
    if options.method == "mincut":
        return _min_cut(rows, options.servers, capacity, events, progress)
    return _random(rows, options.servers, options.seed)


@dataclass(frozen=True, slots=True)
class _RandomOrder:
    """The rows in a random but repeatable order of their ids, cut into parts."""

    seed: int
    key: Floats
    row: Ints

    @property
    def orderings(self) -> int:
        return 1

    def of(self, chunk: Chunk) -> tuple[Ints, Floats]:
        drawn = mixed(chunk.salt ^ mixed(np.array([self.seed], dtype=np.uint64)))
        return np.zeros(len(chunk), dtype=np.int64), (drawn >> np.uint64(11)).astype(np.float64)[:, None]

    def parts(self, chunk: Chunk) -> Ints:
        place = self.of(chunk)[1]
        beyond: Bools = (place > self.key) | ((place == self.key) & (chunk.rows[:, None] > self.row))
        return np.asarray(beyond.sum(axis=1), dtype=np.int64)


def _random(rows: Rows, servers: int, seed: int) -> _RandomOrder:
    order = _RandomOrder(seed, np.empty(0), np.empty(0, dtype=np.int64))
    ranks = borders(rows.count, servers)[1:-1].tolist()
    found = select(rows, order, Contents(), {0: (0.0, 2.0**53)}, [(0, rank) for rank in ranks])
    cuts: list[Cut] = [found[0, rank] for rank in ranks]
    return _RandomOrder(
        seed, np.array([cut.key for cut in cuts]), np.array([cut.row for cut in cuts], dtype=np.int64)
    )


def _min_cut(
    rows: Rows, servers: int, capacity: int, events: Floats, progress: Progress | None
) -> Assignment:
    # With few rows every row is a group, in the tree's order, so that neighbours are together. Otherwise all
    # servers start with the same number of groups, and so of rows.
    each = max(-(-mincut.GROUPS // servers), 4)
    groups = rows.count if rows.count <= mincut.MOST_VERTICES else min(each * servers, rows.count)
    tree = split(rows, groups, Volume.over(rows.space), progress, halve=True)
    contents = Contents(sample=EventSample.of(events))
    parts = survey(rows, tree, contents, groups)
    sizes = np.array([part.count for part in parts], dtype=np.int64)
    weights = mincut.shared_events(np.array([contents.bits(part.content) for part in parts]))
    first = np.arange(groups, dtype=np.int64) * servers // groups
    return Relabelled(tree, mincut.min_cut(weights, sizes, first, servers, capacity))
