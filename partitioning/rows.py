"""The subscriptions to be partitioned, as the algorithms see them: numbered rectangles, somewhere.

`Rows` is the one thing that differs between one machine and many. Everything that an algorithm wants to
know of the subscriptions it asks in passes: a *question* is sent to where the rows are, and a short answer
comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from edn.arrays import Floats, Ints, Words
from partitioning.centroids import local_centroids
from partitioning.space import Space

Shorts = npt.NDArray[np.int32]
A = TypeVar("A", covariant=True)

#: rows that a pass looks at together; its intermediate arrays should fit into a core's cache
CHUNK = 16_384


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some subscriptions, one row each: the bounding rectangle of whatever the subscription matches."""

    #: unique, in the order of the ids; it decides between equals, and means nothing else
    rows: Ints
    #: a hash of the id, for drawing lots
    salt: Words
    #: which of the present servers hosts it, -1 for none
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
        # Chunks may lie end to end in one buffer, and every one must begin at a whole word.
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
    """What is asked of all rows in one pass. It travels to them, so it is small and can be pickled."""

    def gather(self, chunks: Iterable[Chunk]) -> Iterator[tuple[int, Any]]:
        """Go over some of the rows and yield partial answers, each under the number of its subject."""
        ...

    def conclude(self, subject: int, partials: Sequence[Any]) -> A:
        """All partial answers on one subject become one; their order means nothing."""
        ...


class Rows(Protocol):
    """All subscriptions of one partitioning, in one process or in many."""

    @property
    def count(self) -> int: ...

    @property
    def space(self) -> Space: ...

    @property
    def servers(self) -> tuple[str, ...]:
        """The present servers; `Chunk.server` counts them."""
        ...

    def ask(self, question: Question[A]) -> dict[int, A]:
        """One pass: the answer on every subject that some row had something to say on."""
        ...

    def centroids(self, count: int, seed: int) -> Floats:
        """Centroids of the scaled centres by K-means, (count, d); see `partitioning.centroids`."""
        ...


class LocalRows:
    """Rows in the memory of this process. `rows` are numbered in the order in which they are given."""

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
        n = len(lo)
        self._space = space or Space.of(lo, hi)
        self._servers = servers
        rows = np.arange(n, dtype=np.int64)
        salt = mixed(rows.astype(np.uint64))
        present = np.full(n, -1, dtype=np.int32) if server is None else server
        self.whole = Chunk(rows, salt, present, lo, hi)

    @property
    def count(self) -> int:
        return len(self.whole)

    @property
    def space(self) -> Space:
        return self._space

    @property
    def servers(self) -> tuple[str, ...]:
        return self._servers

    def chunks(self) -> Iterator[Chunk]:
        for at in range(0, self.count, CHUNK):
            yield self.whole.take(slice(at, at + CHUNK))

    def ask(self, question: Question[A]) -> dict[int, A]:
        partials = dict(question.gather(self.chunks()))
        return {subject: question.conclude(subject, [partial]) for subject, partial in partials.items()}

    def centroids(self, count: int, seed: int) -> Floats:
        return local_centroids(self._space.centres(self.whole.lo, self.whole.hi), count, seed)


def mixed(words: Words) -> Words:
    """A fixed, well-spread permutation of 64-bit numbers (the finaliser of splitmix64)."""
    z = words + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
