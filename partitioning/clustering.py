"""Assigns subscriptions to K-means centroids, within the servers' capacity.

Subscriptions are points: the centres of their clamped rectangles, each dimension scaled to its range.
K-means ignores load, so the assignment runs in rounds. In a round every unassigned row requests the nearest
server that is not full. A server accepts all requests, or, if there are too many, the nearest ones (ties by
row number), and is full then. Each round but the last fills a server, so there are at most as many rounds as
servers. Like a split, the result is a function of the row alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from edn.arrays import Bools, Floats, Ints
from edn.index.compilation import on_first_use
from partitioning.binning import LAST_ROW
from partitioning.contents import Contents
from partitioning.rows import Chunk, Rows
from partitioning.selection import select
from partitioning.space import MISSING_LENGTH, Space
from partitioning.survey import survey


@dataclass(frozen=True, slots=True)
class Round:
    """One round: each `open` server accepts requests up to (key, row)."""

    open: Bools
    key: Floats
    row: Ints


@dataclass(frozen=True, slots=True)
class Nearest:
    """The assignment to the nearest centroid with room. During the rounds also the keys of the next one."""

    space: Space
    #: (servers, d), scaled
    centroids: Floats
    rounds: tuple[Round, ...]
    #: servers that are not full after the rounds
    open: Bools

    @property
    def orderings(self) -> int:
        return 1

    def of(self, chunk: Chunk) -> tuple[Ints, Floats]:
        """Return the server that each unassigned row requests, and its distance."""
        _, asked, distance = self._walk(chunk)
        return asked, distance[:, None]

    def parts(self, chunk: Chunk) -> Ints:
        taken, asked, _ = self._walk(chunk)
        return np.where(taken >= 0, taken, asked)

    def _walk(self, chunk: Chunk) -> tuple[Ints, Ints, Floats]:
        distances = squared_distances(self.space.centres(chunk.lo, chunk.hi), self.centroids)
        opens = np.array([*(one.open for one in self.rounds), self.open])
        shape = (0, len(self.centroids))
        keys = np.array([one.key for one in self.rounds]).reshape(-1, shape[1])
        rows = np.array([one.row for one in self.rounds], dtype=np.int64).reshape(-1, shape[1])
        taken, asked = np.full(len(chunk), -1), np.full(len(chunk), -1)
        distance = np.zeros(len(chunk))
        _ask(distances, chunk.rows, opens, keys, rows, taken, asked, distance)
        return taken, asked, distance


@dataclass(frozen=True, slots=True)
class _Requests:
    """The unassigned rows, by the server that they request."""

    nearest: Nearest

    def parts(self, chunk: Chunk) -> Ints:
        return self.nearest.of(chunk)[0]


def assign(rows: Rows, centroids: Floats, capacity: int) -> Nearest:
    """Assign every row to a centroid, at most `capacity` per centroid; that must be enough for all."""
    servers = len(centroids)
    nearest = Nearest(rows.space, centroids, (), np.ones(servers, dtype=np.bool_))
    left = np.full(servers, capacity)
    spans = dict.fromkeys(range(servers), (0.0, _furthest(rows.space, centroids)))
    while True:
        asking = np.array([part.count for part in survey(rows, _Requests(nearest), Contents(), servers)])
        over = np.flatnonzero(asking > left)
        if not len(over):
            return nearest
        targets = [(int(server), int(left[server])) for server in over if left[server]]
        cuts = select(rows, nearest, Contents(), spans, targets)
        key, row = np.full(servers, np.inf), np.full(servers, LAST_ROW)
        for server in over:
            cut = cuts.get((int(server), int(left[server])))
            key[server], row[server] = (cut.key, cut.row) if cut is not None else (-np.inf, -1)
        done = Round(nearest.open, key, row)
        left = left - np.minimum(asking, left)
        still = nearest.open.copy()
        still[over] = False
        nearest = replace(nearest, rounds=(*nearest.rounds, done), open=still)


def _furthest(space: Space, centroids: Floats) -> float:
    """Return an upper bound of the squared distances: centres are within the range, or below it if the
    attribute is missing."""
    lowest = -MISSING_LENGTH * space.scale / (space.top - space.base)
    reach = np.maximum(np.abs(centroids - lowest), np.abs(centroids - 1.0))
    # With a margin for rounding.
    return 1.01 * float((reach * reach).sum(axis=1).max())


@on_first_use
def squared_distances(points: Floats, centroids: Floats) -> Floats:
    out = np.zeros((points.shape[0], centroids.shape[0]))
    for i in range(points.shape[0]):
        for c in range(centroids.shape[0]):
            total = 0.0
            for j in range(points.shape[1]):
                away = points[i, j] - centroids[c, j]
                total += away * away
            out[i, c] = total
    return out


@on_first_use
def _ask(
    distances: Floats,
    numbers: Ints,
    opens: Bools,
    keys: Floats,
    rows: Ints,
    taken: Ints,
    asked: Ints,
    distance: Floats,
) -> None:
    """Run the rounds for each row: set the server that `taken` it, or the one that is `asked` next."""
    servers = distances.shape[1]
    for i in range(distances.shape[0]):
        for turn in range(opens.shape[0]):
            best = -1
            for s in range(servers):
                if opens[turn, s] and (best < 0 or distances[i, s] < distances[i, best]):
                    best = s
            distance[i] = distances[i, best]
            if turn == opens.shape[0] - 1:
                asked[i] = best
            elif distance[i] < keys[turn, best] or (
                distance[i] == keys[turn, best] and numbers[i] <= rows[turn, best]
            ):
                taken[i] = best
                break
