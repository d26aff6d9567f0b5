"""The maximal rectangles under inserts and deletes, against a pairwise definition."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.summary import Maximal
from edn.tools.bench.workloads import market_rectangles, uniform_rectangles

INF = float("inf")
LOWEST = -float(np.finfo(np.float64).max)

Rect = tuple[tuple[float, ...], tuple[float, ...]]


def covers(outer: Rect, inner: Rect) -> bool:
    return all(a <= b for a, b in zip(outer[0], inner[0], strict=True)) and all(
        a >= b for a, b in zip(outer[1], inner[1], strict=True)
    )


def maximal_of(rects: list[Rect]) -> set[Rect]:
    distinct = set(rects)
    return {r for r in distinct if not any(covers(other, r) for other in distinct if other != r)}


def as_set(maximal: Maximal) -> set[Rect]:
    lo, hi = maximal.rects()
    found = [(tuple(a), tuple(b)) for a, b in zip(lo.tolist(), hi.tolist(), strict=True)]
    assert len(set(found)) == len(found), "a rectangle is there twice"
    return set(found)


@dataclass
class Peer:
    """The same set kept the plain way, beside the one under test."""

    maximal: Maximal
    rects: dict[int, Rect] = field(default_factory=dict)

    def insert(self, named: dict[int, Rect]) -> None:
        self.maximal.insert(
            list(named),
            np.array([lo for lo, _ in named.values()]).reshape(len(named), self.maximal.dimensions),
            np.array([hi for _, hi in named.values()]).reshape(len(named), self.maximal.dimensions),
        )
        self.rects.update(named)

    def delete(self, ids: list[int]) -> None:
        self.maximal.delete(ids)
        for id in ids:
            del self.rects[id]

    def grow(self, dimensions: int) -> None:
        more = dimensions - self.maximal.dimensions
        self.maximal.grow(dimensions)
        self.rects = {id: (lo + (-INF,) * more, hi + (INF,) * more) for id, (lo, hi) in self.rects.items()}

    def agree(self) -> None:
        assert as_set(self.maximal) == maximal_of(list(self.rects.values()))
        assert len(self.maximal) == len(as_set(self.maximal))
        assert self.maximal.total == len(self.rects)


#: few values, so that equal, nested and touching rectangles are common; the special ones among them
bounds = st.sampled_from([-INF, LOWEST, -1.0, 0.0, 1.0, 2.0, 3.0, INF])


@st.composite
def rects(draw: st.DrawFn, dimensions: int) -> Rect:
    pairs = [sorted((draw(bounds), draw(bounds))) for _ in range(dimensions)]
    return tuple(low for low, _ in pairs), tuple(high for _, high in pairs)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(0, 3))
def test_it_agrees_with_the_definition_under_any_sequence_of_changes(
    data: st.DataObject, dimensions: int
) -> None:
    peer = Peer(Maximal(dimensions))
    following = 0
    for _ in range(data.draw(st.integers(1, 8), label="steps")):
        step = data.draw(st.sampled_from(["insert", "insert", "insert", "delete", "delete", "grow"]))
        if step == "insert":
            coming = data.draw(st.lists(rects(peer.maximal.dimensions), min_size=1, max_size=12))
            peer.insert({following + i: rect for i, rect in enumerate(coming)})
            following += len(coming)
        elif step == "delete" and peer.rects:
            going = st.lists(st.sampled_from(sorted(peer.rects)), unique=True, max_size=12)
            peer.delete(data.draw(going))
        elif step == "grow":
            peer.grow(peer.maximal.dimensions + data.draw(st.integers(0, 1)))
        peer.agree()
        peer.maximal.check()


@pytest.mark.parametrize("d", [1, 2, 4, 8])
def test_large_sets_agree_with_the_definition(d: int) -> None:
    rng = np.random.default_rng(d)
    lo, hi = uniform_rectangles(rng, 3000, d)
    # Some exact repeats, and some that lie just inside another.
    lo[2000:2200], hi[2000:2200] = lo[:200], hi[:200]
    lo[2200:2400], hi[2200:2400] = lo[:200] + 1e-9, np.maximum(hi[:200] - 1e-9, lo[:200] + 1e-9)
    maximal = Maximal(d)
    there: set[int] = set()
    ids = rng.permutation(3000)
    for begin in range(0, 3000, 600):
        coming = ids[begin : begin + 600]
        maximal.insert(coming, lo[coming], hi[coming])
        there |= set(coming.tolist())
        going = rng.choice(sorted(there), 250, replace=False)
        maximal.delete(going)
        there -= set(going.tolist())
        kept = np.array(sorted(there))
        inside = ((lo[kept][:, None] <= lo[kept]) & (hi[kept][:, None] >= hi[kept])).all(axis=2)
        equal = inside & inside.T
        strictly = (inside & ~equal).any(axis=0)
        expected = {
            (tuple(a), tuple(b))
            for a, b in zip(lo[kept][~strictly].tolist(), hi[kept][~strictly].tolist(), strict=True)
        }
        assert as_set(maximal) == expected


def test_its_inner_structure_holds_while_it_grows_and_shrinks() -> None:
    rng = np.random.default_rng(11)
    lo, hi = market_rectangles(rng, 700)
    maximal = Maximal(lo.shape[1])
    for begin in range(0, 700, 100):
        maximal.insert(range(begin, begin + 100), lo[begin : begin + 100], hi[begin : begin + 100])
        maximal.check()
    for begin in range(0, 700, 175):
        maximal.delete(range(begin, begin + 175))
        maximal.check()
    assert len(maximal) == maximal.total == 0


def test_deleting_a_maximal_one_resurfaces_exactly_what_only_it_covered() -> None:
    maximal = Maximal(1)
    maximal.insert([1, 2, 3, 4], [[0], [1], [2], [20]], [[10], [5], [3], [30]])
    assert as_set(maximal) == {((0.0,), (10.0,)), ((20.0,), (30.0,))}
    maximal.delete([1])
    assert as_set(maximal) == {((1.0,), (5.0,)), ((20.0,), (30.0,))}
    maximal.delete([2])
    assert as_set(maximal) == {((2.0,), (3.0,)), ((20.0,), (30.0,))}


def test_of_equal_ones_another_takes_the_place_of_the_one_that_goes() -> None:
    maximal = Maximal(2)
    maximal.insert([1, 2, 3], [[0, 0]] * 3, [[1, 1]] * 3)
    for id in (1, 2):
        maximal.delete([id])
        assert as_set(maximal) == {((0.0, 0.0), (1.0, 1.0))}
    maximal.delete([3])
    assert as_set(maximal) == set()


def test_a_narrower_rectangle_is_unconstrained_in_the_columns_it_lacks() -> None:
    maximal = Maximal(2)
    maximal.insert([1, 2], [[0, 5], [0, 7]], [[1, 6], [1, 8]])
    maximal.insert([3], [[0]], [[1]])
    assert as_set(maximal) == {((0.0, -INF), (1.0, INF))}


@pytest.mark.parametrize(
    ("ids", "lo", "hi", "message"),
    [
        ([1], [[0.0, 0.0]], [[1.0, 1.0]], "exists already"),
        ([2, 2], [[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2, "twice"),
        ([2], [[2.0, 0.0]], [[1.0, 1.0]], "above its upper"),
        ([2], [[np.nan, 0.0]], [[1.0, 1.0]], "NaN"),
        ([2], [[0.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]], "shape"),
        ([2], [[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2, "shape"),
    ],
)
def test_what_it_cannot_take_changes_nothing(
    ids: list[int], lo: list[list[float]], hi: list[list[float]], message: str
) -> None:
    maximal = Maximal(2)
    maximal.insert([1], [[0, 0]], [[1, 1]])
    with pytest.raises(ValueError, match=message):
        maximal.insert(ids, lo, hi)
    maximal.check()
    assert maximal.total == 1


def test_deleting_an_unknown_id_deletes_nothing() -> None:
    maximal = Maximal(1)
    maximal.insert([1, 2], [[0], [5]], [[1], [6]])
    with pytest.raises(KeyError):
        maximal.delete([1, 9])
    assert len(maximal) == 2
    assert 1 in maximal
    maximal.check()


@pytest.mark.parametrize("many", [1024, 20])
def test_only_columns_that_are_used_are_active(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns become active one by one, or in growing numbers once there are many rectangles."""
    monkeypatch.setattr("edn.summary.maximal._MANY", many)
    rng = np.random.default_rng(7)
    width = 24
    peer = Peer(Maximal(width))
    for id in range(80):
        lo, hi = [-INF] * width, [INF] * width
        for column in rng.choice(1 + id // 4, size=rng.integers(0, 3)).tolist():
            low, high = sorted(rng.integers(0, 6, 2).tolist())
            lo[column], hi[column] = float(low), float(high)
        if id == 0:
            lo, hi = [-INF] * width, [-INF] * width
        peer.insert({id: (tuple(lo), tuple(hi))})
        if id % 7 == 3:
            peer.delete([id // 2])
        if id % 10 == 0:
            peer.maximal.check()
        assert as_set(peer.maximal) == maximal_of(list(peer.rects.values()))


def test_an_unconstrained_rectangle_in_a_wide_space_costs_little() -> None:
    maximal = Maximal(256)
    maximal.insert([0], np.full((1, 256), -INF), np.full((1, 256), INF))
    assert maximal.nbytes < 32 << 10
    assert len(maximal.rects()[0]) == 1
