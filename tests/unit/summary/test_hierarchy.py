"""A summary's hierarchy: every cut contains everything, cuts are nested, and its bytes are checked."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.arrays import Floats
from edn.errors import CorruptMessage
from edn.summary import Summary, new_router
from edn.tools.bench.workloads import market_rectangles, uniform_points, uniform_rectangles

INF = float("inf")

bounds = st.sampled_from([-INF, -1.0, 0.0, 1.0, 2.0, 3.0, INF])


@st.composite
def rectangle_sets(draw: st.DrawFn) -> tuple[Floats, Floats]:
    n = draw(st.integers(0, 14))
    d = draw(st.integers(0, 3))
    values = np.array(draw(st.lists(bounds, min_size=2 * n * d, max_size=2 * n * d))).reshape(2, n, d)
    return values.min(axis=0), values.max(axis=0)


def contained(lo: Floats, hi: Floats, outer_lo: Floats, outer_hi: Floats) -> bool:
    """Every rectangle lies inside one of the others."""
    return all(
        any((outer_lo[j] <= lo[i]).all() and (outer_hi[j] >= hi[i]).all() for j in range(len(outer_lo)))
        for i in range(len(lo))
    )


@settings(max_examples=150, deadline=None)
@given(rectangle_sets(), st.sampled_from(["waste", "level", "weighted"]), st.integers(0, 2**32 - 1))
def test_every_cut_has_its_size_contains_all_and_lies_inside_the_coarser_one(
    rects: tuple[Floats, Floats], how: str, seed: int
) -> None:
    lo, hi = rects
    summary = Summary.build(lo, hi)
    summary.check()
    assert summary.count == len(lo)
    weights = np.random.default_rng(seed).random((20, lo.shape[1])) * 4 - 0.5 if how == "weighted" else None
    coarser: tuple[Floats, Floats] | None = None
    for k in range(1, len(lo) + 2):
        cut = summary.cut(k, by="level" if how == "level" else "waste", weights=weights)
        assert len(cut[0]) == min(k, len(lo))
        assert contained(lo, hi, *cut)
        if coarser is not None:
            assert contained(*cut, *coarser)
        coarser = cut


@settings(max_examples=100, deadline=None)
@given(rectangle_sets())
def test_bytes_give_back_the_same_summary(rects: tuple[Floats, Floats]) -> None:
    summary = Summary.build(*rects)
    data = summary.to_bytes()
    assert len(data) == summary.nbytes
    again = Summary.from_bytes(data)
    assert (again.count, again.dimensions) == (summary.count, summary.dimensions)
    assert again.to_bytes() == data
    for k in range(1, summary.count + 1):
        for one, other in zip(summary.cut(k), again.cut(k), strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_finest_cut_is_the_rectangles_themselves() -> None:
    lo, hi = uniform_rectangles(np.random.default_rng(1), 300, 3)
    cut_lo, cut_hi = Summary.build(lo, hi).cut(300)
    given_rows = sorted(np.hstack([lo, hi]).tolist())
    assert sorted(np.hstack([cut_lo, cut_hi]).tolist()) == given_rows


def test_an_empty_summary_is_cut_to_nothing() -> None:
    empty = Summary.build(np.empty((0, 3)), np.empty((0, 3)))
    assert empty.count == 0
    assert Summary.from_bytes(empty.to_bytes()).cut(1)[0].shape == (0, 3)


def test_a_cut_of_no_rectangles_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Summary.build(np.zeros((2, 1)), np.ones((2, 1))).cut(0)


@pytest.mark.parametrize(
    ("lo", "hi"), [([[2.0]], [[1.0]]), ([[np.nan]], [[1.0]]), ([[0.0]], [[1.0, 2.0]]), ([0.0], [1.0])]
)
def test_what_is_no_set_of_rectangles_is_refused(lo: list[list[float]], hi: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="bound"):
        Summary.build(lo, hi)


def hits(cut: tuple[Floats, Floats], points: Floats) -> int:
    out = np.zeros((len(points), 1), dtype=np.bool_)
    router = new_router("bitmap")
    router.bundle([(0, router.cover(*cut))]).mark(points, out)
    return int(out.sum())


def test_opening_the_most_wasteful_node_lets_fewer_events_through_than_going_level_by_level() -> None:
    rng = np.random.default_rng(8)
    lo, hi = uniform_rectangles(rng, 2000, 6)
    points = uniform_points(rng, 4000, 6)
    summary = Summary.build(lo, hi)
    for k in (200, 500, 1000):
        assert hits(summary.cut(k), points) < hits(summary.cut(k, by="level"), points)


def test_a_sample_of_the_events_improves_the_cut_where_events_are_not_where_borders_are() -> None:
    rng = np.random.default_rng(9)
    lo, hi = uniform_rectangles(rng, 1500, 6)
    # Events crowd into a corner that few rectangles reach.
    points = rng.random((6000, 6)) ** 3 * 10
    summary = Summary.build(lo, hi)
    for k in (150, 375, 750):
        assert hits(summary.cut(k, weights=points[:3000]), points[3000:]) < hits(
            summary.cut(k), points[3000:]
        )


def test_filters_that_name_values_and_leave_most_attributes_open_can_be_cut() -> None:
    lo, hi = market_rectangles(np.random.default_rng(4), 500)
    summary = Summary.build(lo, hi)
    summary.check()
    for k in (1, 2, 7, 100, 499):
        assert contained(lo, hi, *summary.cut(k))


def sealed(data: bytes) -> bytes:
    """The same bytes with a CRC that fits, as a faulty program would send them."""
    crc = zlib.crc32(data[16:], zlib.crc32(data[:12]))
    return data[:12] + struct.pack("<I", crc) + data[16:]


def with_child(data: bytes, node: int, side: int, child: int) -> bytes:
    at = 16 + 8 * node + 4 * side
    return sealed(data[:at] + struct.pack("<I", child) + data[at + 4 :])


def with_bound(data: bytes, count: int, dimensions: int, node: int, value: float, *, upper: bool) -> bytes:
    at = 16 + 8 * (count - 1) + 8 * dimensions * (node + (2 * count - 1 if upper else 0))
    return sealed(data[:at] + struct.pack("<d", value) + data[at + 8 :])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "got 0"),
        (lambda data: data[:15], "got 15"),
        (lambda data: b"EDNX" + data[4:], "must begin with"),
        (lambda data: sealed(data[:4] + b"\x02" + data[5:]), "must have version 1, got 2"),
        (lambda data: sealed(data[:5] + b"\x01" + data[6:]), "byte 5 of a summary must be 0, got 1"),
        (lambda data: data[:-1], "bytes, got"),
        (lambda data: data + b"\0", "bytes, got"),
        (lambda data: sealed(data[:6] + b"\x03\0" + data[8:]), "3 dimensions"),
        (lambda data: sealed(data[:8] + b"\xff\xff\xff\xff" + data[12:]), "4294967295 rectangles"),
        (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "CRC"),
        (lambda data: data[:12] + b"\0\0\0\0" + data[16:], "CRC"),
        (lambda data: with_child(data, 2, 0, 9), "must be in"),
        (lambda data: with_child(data, 2, 1, 2), "must be in"),
        (lambda data: with_child(data, 3, 0, 0), "must be in"),
        (lambda data: with_child(with_child(data, 3, 0, 8), 3, 1, 8), "must have one parent, got"),
        (lambda data: with_bound(data, 5, 2, 0, 9.0, upper=False), "does not contain its child"),
        (lambda data: with_bound(data, 5, 2, 0, 0.5, upper=True), "does not contain its child"),
        (lambda data: with_bound(data, 5, 2, 8, 99.0, upper=False), "above its upper"),
        (lambda data: with_bound(data, 5, 2, 8, float("nan"), upper=True), "NaN"),
    ],
)
def test_damaged_bytes_are_refused_with_the_reason(damage: Callable[[bytes], bytes], message: str) -> None:
    corner = np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 1.0], [6.0, 3.0], [8.0, 3.0]])
    data = Summary.build(corner, corner + 1).to_bytes()
    with pytest.raises(CorruptMessage, match=message):
        Summary.from_bytes(damage(data))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_changed_byte_goes_unnoticed(data: st.DataObject) -> None:
    corner = np.arange(10.0).reshape(5, 2)
    good = Summary.build(corner, corner + 1).to_bytes()
    at = data.draw(st.integers(0, len(good) - 1))
    bad = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    with pytest.raises(CorruptMessage):
        Summary.from_bytes(bad)
