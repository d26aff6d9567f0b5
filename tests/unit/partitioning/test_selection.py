"""Exact cuts, against sorting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.arrays import Floats
from partitioning.contents import Contents, EventSample
from partitioning.rows import Chunk, LocalRows, Question
from partitioning.selection import select
from partitioning.space import Space


@dataclass(frozen=True)
class Fixed:
    """Given nodes and keys, looked up by row number."""

    nodes: npt.NDArray[np.int64]
    keys: Floats

    @property
    def orderings(self) -> int:
        return self.keys.shape[1]

    def of(self, chunk: Chunk) -> tuple[npt.NDArray[np.int64], Floats]:
        return self.nodes[chunk.rows], self.keys[chunk.rows]


class Scattered(LocalRows):
    """Rows in several places: what each place gathers is concluded together, in no particular order."""

    places = 3

    def ask(self, question: Question[Any]) -> dict[int, Any]:
        def at(place: int) -> Iterator[Chunk]:
            yield self.whole.take(np.arange(place, self.count, self.places))

        met: dict[int, list[Any]] = {}
        for place in reversed(range(self.places)):
            for subject, partial in question.gather(at(place)):
                met.setdefault(subject, []).append(partial)
        return {subject: question.conclude(subject, some) for subject, some in met.items()}


KEYS = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-1e300, 1e300, allow_nan=False).map(lambda x: x + 0.0),
    # neighbours, and numbers of very different size
    st.integers(0, 40).map(lambda k: 1.0 + k * 2.0**-52),
    st.integers(-300, 300).map(lambda k: 10.0**k),
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_cuts_are_where_sorting_puts_them(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 60))
    orderings = data.draw(st.integers(1, 3))
    keys = np.array(data.draw(st.lists(KEYS, min_size=n * orderings, max_size=n * orderings)))
    keys = keys.reshape(n, orderings)
    nodes = np.array(data.draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n)))
    points = np.random.default_rng(n).integers(0, 9, (n, 2)).astype(np.float64)
    lo, hi = points, points + 1.0
    rows = Scattered(lo, hi)
    space = Space.of(lo, hi)
    contents = Contents(space, EventSample.of(points[:7] + 0.5))
    targets, spans = [], {}
    for node in range(2):
        size = int((nodes == node).sum())
        for ordering in range(orderings):
            group = node * orderings + ordering
            spans[group] = (float(keys.min()), float(keys.max()))
            targets += [(group, rank) for rank in {1, size // 2, size - 1} if 0 < rank < size]
    found = select(rows, Fixed(nodes, keys), contents, spans, targets)
    assert set(found) == set(targets)
    low, high = space.clamp(lo, hi)
    events = points[:7] + 0.5
    for (group, rank), cut in found.items():
        node, ordering = divmod(group, orderings)
        mine = sorted((keys[i, ordering], i) for i in range(n) if nodes[i] == node)
        left = [i for key, i in mine if (key, i) <= (cut.key, cut.row)]
        assert left == [i for _, i in mine[:rank]]
        for side, content in ((left, cut.left), ([i for _, i in mine[rank:]], cut.right)):
            box = contents.box(content)
            assert box[0].tolist() == low[side].min(axis=0).tolist()
            assert box[1].tolist() == high[side].max(axis=0).tolist()
            inside = sum(any((lo[i] <= e).all() and (e <= hi[i]).all() for i in side) for e in events)
            assert contents.events(content) == inside


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_events_inside_a_rectangle_are_those_that_it_contains(data: st.DataObject) -> None:
    d = data.draw(st.integers(1, 3))
    coordinate = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 1.0, 2.0])
    bound = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 1.0, 2.0, np.inf])
    points = np.array(
        data.draw(st.lists(st.lists(coordinate, min_size=d, max_size=d), min_size=1, max_size=70))
    )
    pairs = np.array(
        data.draw(st.lists(st.lists(bound, min_size=2 * d, max_size=2 * d), min_size=1, max_size=9))
    )
    lo, hi = np.minimum(pairs[:, :d], pairs[:, d:]), np.maximum(pairs[:, :d], pairs[:, d:])
    bits = EventSample.of(points).inside(lo, hi)
    for i in range(len(lo)):
        for e, point in enumerate(points):
            expected = bool((lo[i] <= point).all() and (point <= hi[i]).all())
            assert bool(int(bits[i, e // 64]) >> (e % 64) & 1) == expected
