"""The subscriptions to be partitioned, as numbered rectangles.

`Rows` hides whether they are on one machine or on many. Algorithms query them in passes: a *question* is
sent to the rows, and a short answer returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from edn.arrays import Floats, Ints, Words
from partitioning.space import Space

Shorts = npt.NDArray[np.int32]
A = TypeVar("A", covariant=True)

#: rows per chunk; its intermediate arrays should fit into a core's cache
CHUNK = 16_384
#: K-means stops when all centroids together move less than this, in lengths of the range
MOVEMENT = 0.1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some subscriptions, each a row with its bounding rectangle."""

    #: unique numbers in the order of the ids; they only break ties
    rows: Ints
    #: hash of the id, for random order
    salt: Words
    #: number of the present server, -1 for none
    server: Shorts
    lo: Floats
    hi: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: Ints | slice) -> Chunk:
        return Chunk(
            self.rows[places], self.salt[places], self.server[places], self.lo[places], self.hi[places]
        )

    def to_bytes(self) -> bytes:
        head = np.array(self.lo.shape, dtype=np.int64)
        sections = (head, self.rows, self.salt, self.lo, self.hi, self.server)
        data = b"".join(np.ascontiguousarray(section).tobytes() for section in sections)
        # Padded, so that chunks in one buffer are aligned to words.
        return data + bytes(-len(data) % 8)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Chunk:
        n, d = (int(x) for x in np.frombuffer(data, np.int64, 2))
        at = 16
        rows = np.frombuffer(data, np.int64, n, at)
        salt = np.frombuffer(data, np.uint64, n, at + 8 * n)
        at += 16 * n
        lo = np.frombuffer(data, np.float64, n * d, at).reshape(n, d)
        hi = np.frombuffer(data, np.float64, n * d, at + 8 * n * d).reshape(n, d)
        server = np.frombuffer(data, np.int32, n, at + 16 * n * d)
        return cls(rows, salt, server, lo, hi)


class Question(Protocol[A]):
    """A query over all rows in one pass. It is sent to them, so it is small and can be pickled."""

    def gather(self, chunks: Iterable[Chunk]) -> Iterator[tuple[int, Any]]:
        """Yield partial answers from some of the rows, each with the number of its subject."""
        ...

    def conclude(self, subject: int, partials: Sequence[Any]) -> A:
        """Combine all partial answers on one subject, in any order."""
        ...


class Rows(Protocol):
    """All subscriptions, in one process or in many."""

    @property
    def count(self) -> int: ...

    @property
    def space(self) -> Space: ...

    @property
    def servers(self) -> tuple[str, ...]:
        """The present servers; `Chunk.server` is an index of it."""
        ...

    def ask(self, question: Question[A]) -> dict[int, A]:
        """Run one pass; return the answer on every subject with a partial answer."""
        ...

    def centroids(self, count: int, seed: int) -> Floats:
        """Return the centroids of the scaled centres by K-means, (count, d)."""
        ...


class LocalRows:
    """Rows in the memory of this process, numbered in their order."""

    def __init__(
        self,
        lo: Floats,
        hi: Floats,
        *,
        servers: tuple[str, ...] = (),
        server: Shorts | None = None,
        space: Space | None = None,
    ) -> None:
        lo, hi = np.ascontiguousarray(lo, dtype=np.float64), np.ascontiguousarray(hi, dtype=np.float64)
        self.count = len(lo)
        self.space = space or Space.of(lo, hi)
        self.servers = servers
        rows = np.arange(self.count, dtype=np.int64)
        present = np.full(self.count, -1, dtype=np.int32) if server is None else server
        self.whole = Chunk(rows, mixed(rows.astype(np.uint64)), present, lo, hi)

    def chunks(self) -> Iterator[Chunk]:
        for at in range(0, self.count, CHUNK):
            yield self.whole.take(slice(at, at + CHUNK))

    def ask(self, question: Question[A]) -> dict[int, A]:
        partials = dict(question.gather(self.chunks()))
        return {subject: question.conclude(subject, [partial]) for subject, partial in partials.items()}

    def centroids(self, count: int, seed: int) -> Floats:
        from sklearn.cluster import KMeans

        points = self.space.centres(self.whole.lo, self.whole.hi)
        # It stops when the sum of squared movements is below tol × mean variance; by Cauchy-Schwarz the
        # sum of the movements is then below MOVEMENT.
        variance = float(points.var(axis=0).mean())
        tolerance = MOVEMENT**2 / count / variance if variance > 0 else 0.0
        model = KMeans(n_clusters=count, n_init=1, random_state=seed, tol=tolerance).fit(points)
        return np.ascontiguousarray(model.cluster_centers_, dtype=np.float64)


def mixed(words: Words) -> Words:
    """Permute 64-bit numbers pseudo-randomly (the finaliser of splitmix64)."""
    z = words + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
