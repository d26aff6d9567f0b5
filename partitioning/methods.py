"""The offline methods by name: from rows to an assignment of each to one of N servers.

| method | parts | what it makes small |
|---|---|---|
| `rtree` | equal | bounding volumes: the published top-down greedy split |
| `traffic` | equal | events of a sample that the servers are sent: the same split, another measure |
| `kmeans` | up to the capacity | distances of centres |
| `random` | equal | nothing: the baseline |
| `mincut` | up to the capacity | overlap between servers, on a graph of at most a few thousand vertices |

The same code runs in one process and on Spark; `Rows` is what differs, and the centroids of K-means, which
scikit-learn finds in one process and MLlib on many machines.
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
class Wish:
    """What is to be made of the rows."""

    method: str
    servers: int
    #: the most subscriptions of one server; None is twice the average, rounded up
    capacity: int | None = None
    #: network distance of each server; only the splits regard it, and then part i is server i
    distances: Sequence[float] | None = None
    seed: int = 0


def check_method(name: str) -> None:
    if name not in METHODS:
        raise InvalidInput(f'no method "{name}"; known are {", ".join(METHODS)}')


def checked_capacity(wish: Wish, count: int) -> int:
    """The capacity, when the wish can be fulfilled at all."""
    check_method(wish.method)
    if wish.servers < 1:
        raise InvalidInput(f"{wish.servers} servers; at least one is needed")
    if count < wish.servers:
        raise InvalidInput(
            f"{count} subscriptions for {wish.servers} servers; there must be at least one a server"
        )
    if wish.distances is not None and len(wish.distances) != wish.servers:
        raise InvalidInput(f"{len(wish.distances)} distances for {wish.servers} servers")
    least = -(-count // wish.servers)
    capacity = -(-2 * count // wish.servers) if wish.capacity is None else wish.capacity
    if capacity < least:
        raise InvalidInput(
            f"a capacity of {capacity} is too small: {count} subscriptions on {wish.servers} servers "
            f"need room for {least} each"
        )
    return capacity


def partition(rows: Rows, wish: Wish, events: Floats, progress: Progress | None = None) -> Assignment:
    """The assignment of every row to a part 0 … servers - 1; `events` is a sample, (m, d)."""
    capacity = checked_capacity(wish, rows.count)
    if wish.method == "rtree":
        return split(rows, wish.servers, Volume.over(rows.space, wish.distances), progress)
    if wish.method == "traffic":
        return split(rows, wish.servers, Traffic.over(rows.space, events, wish.distances), progress)
    if wish.method == "kmeans":
        centroids = rows.centroids(wish.servers, wish.seed)
        return clustering.assign(rows, centroids, capacity)
    if wish.method == "mincut":
        return _min_cut(rows, wish.servers, capacity, events, progress)
    return draw_lots(rows, wish.servers, wish.seed)


@dataclass(frozen=True, slots=True)
class Lots:
    """Rows in a random but repeatable order of their ids, cut into stretches."""

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
        lot = self.of(chunk)[1]
        beyond: Bools = (lot > self.key) | ((lot == self.key) & (chunk.rows[:, None] > self.row))
        return np.asarray(beyond.sum(axis=1), dtype=np.int64)


def draw_lots(rows: Rows, servers: int, seed: int) -> Lots:
    """Parts of equal size, by chance."""
    lots = Lots(seed, np.empty(0), np.empty(0, dtype=np.int64))
    ranks = borders(rows.count, servers)[1:-1].tolist()
    found = select(rows, lots, Contents(), {0: (0.0, 2.0**53)}, [(0, rank) for rank in ranks])
    cuts: list[Cut] = [found[0, rank] for rank in ranks]
    return Lots(
        seed, np.array([cut.key for cut in cuts]), np.array([cut.row for cut in cuts], dtype=np.int64)
    )


def _min_cut(
    rows: Rows, servers: int, capacity: int, events: Floats, progress: Progress | None
) -> Assignment:
    # With few rows every part is one; they come in the tree's order, neighbours together. Otherwise each
    # server begins with as many groups as any other, so that equally many rows are in them.
    each = max(-(-mincut.GROUPS // servers), 4)
    groups = rows.count if rows.count <= mincut.MOST_VERTICES else min(each * servers, rows.count)
    tree = split(rows, groups, Volume.over(rows.space), progress, halve=True)
    contents = Contents(sample=EventSample.of(events))
    parts = survey(rows, tree, contents, groups)
    sizes = np.array([part.count for part in parts], dtype=np.int64)
    weights = mincut.shared_events(np.array([contents.bits(part.content) for part in parts]))
    first = np.arange(groups, dtype=np.int64) * servers // groups
    return Relabelled(tree, mincut.min_cut(weights, sizes, first, servers, capacity))
