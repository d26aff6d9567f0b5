"""The bitmap matcher: background merges beside readers and a writer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest

from edn.arrays import Floats
from edn.index import bitmap, segment
from edn.index.bitmap import BitmapMatcher
from edn.index.segment import Segment

EVERYWHERE = np.array([[-np.inf, -np.inf]]), np.array([[np.inf, np.inf]])
CENTRE = np.array([[5.0, 5.0]])


def rectangles(seed: int, count: int, dimensions: int = 2) -> tuple[Floats, Floats]:
    one, other = np.random.default_rng(seed).uniform(0, 10, (2, count, dimensions))
    return np.minimum(one, other), np.maximum(one, other)


def brute_force(ids: npt.NDArray[np.int64], lo: Floats, hi: Floats, point: Floats) -> list[int]:
    return sorted(ids[((lo <= point) & (point <= hi)).all(axis=1)].tolist())


@pytest.fixture
def held_merge(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A merge that, once it has read what it merges, reports so and waits to be let go."""
    reached, go = threading.Event(), threading.Event()
    gather: Callable[..., object] = segment.gather

    def gather_and_wait(*arguments: object) -> object:
        rows = gather(*arguments)
        if threading.current_thread().name == "edn-index-merge":
            reached.set()
            assert go.wait(60)
        return rows

    monkeypatch.setattr(bitmap, "gather", gather_and_wait)
    yield reached, go
    go.set()


def test_what_changes_during_a_merge_is_not_lost(
    held_merge: tuple[threading.Event, threading.Event],
) -> None:
    reached, go = held_merge
    matcher = BitmapMatcher(2)
    count = 6000
    lo, hi = rectangles(1, 3 * count)
    ids = np.arange(3 * count)
    matcher.insert(ids[:count], lo[:count], hi[:count])
    matcher.insert(ids[count : 2 * count], lo[count : 2 * count], hi[count : 2 * count])
    assert reached.wait(60)
    alive = np.ones(3 * count, dtype=bool)
    alive[2 * count :] = False

    def check() -> None:
        _, found = matcher.match(CENTRE)
        assert sorted(found.tolist()) == brute_force(ids[alive], lo[alive], hi[alive], CENTRE)
        assert len(matcher) == alive.sum()

    matcher.delete(ids[100:4000])
    alive[100:4000] = False
    check()
    for row in range(2 * count, 2 * count + 500):
        matcher.insert(ids[row : row + 1], lo[row : row + 1], hi[row : row + 1])
        alive[row] = True
    check()
    # deleted from what is being merged, and inserted again, as another rectangle
    matcher.insert(ids[100:200], lo[4000:4100], hi[4000:4100])
    lo[100:200], hi[100:200] = lo[4000:4100], hi[4000:4100]
    alive[100:200] = True
    check()
    go.set()
    matcher.wait_for_merges()
    check()
    matcher.delete(ids[100:200])
    alive[100:200] = False
    check()


def test_a_match_that_began_before_a_merge_still_sees_everything_after_it(
    held_merge: tuple[threading.Event, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = held_merge
    matcher = BitmapMatcher(2)
    lo, hi = rectangles(2, 8000)
    ids = np.arange(8000)
    matcher.insert(ids[:4000], lo[:4000], hi[:4000])
    matcher.insert(ids[4000:], lo[4000:], hi[4000:])
    assert reached.wait(60)
    sieve = Segment.sieve

    def sieve_after_the_merge(
        here: Segment, points: Floats, counts: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        go.set()
        matcher.wait_for_merges()
        return sieve(here, points, counts)

    monkeypatch.setattr(Segment, "sieve", sieve_after_the_merge)
    _, found = matcher.match(CENTRE)
    assert sorted(found.tolist()) == brute_force(ids, lo, hi, CENTRE)


def test_readers_see_every_rectangle_that_stays_while_others_come_and_go() -> None:
    matcher = BitmapMatcher(2)
    lo, hi = rectangles(3, 5000)
    stays = np.arange(5000)
    matcher.insert(stays, lo, hi)
    points = np.random.default_rng(4).uniform(0, 10, (50, 2))
    expected = [brute_force(stays, lo, hi, point) for point in points]
    wrong: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            starts, found = matcher.match(points)
            for row in range(len(points)):
                answer = found[starts[row] : starts[row + 1]]
                if sorted(answer[answer < 5000].tolist()) != expected[row]:
                    wrong.append(f"point {row} lost or gained one that stays")
                guests = answer[answer >= 5000]
                inside = (
                    (guest_lo[guests - 5000] <= points[row]) & (points[row] <= guest_hi[guests - 5000])
                ).all()
                if not inside or len(set(guests.tolist())) < len(guests):
                    wrong.append(f"point {row} found a guest twice, or one that does not contain it")

    rounds, size = 60, 700
    guest_lo, guest_hi = rectangles(5, rounds * size)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for round_ in range(rounds):
            rows = np.arange(round_ * size, (round_ + 1) * size)
            matcher.insert(5000 + rows, guest_lo[rows], guest_hi[rows])
            if round_ % 2:
                matcher.delete(5000 + rows - size)
            if round_ == rounds // 2:
                matcher.grow(3)
                matcher.grow(5)
    finally:
        done.set()
        for reader in readers:
            reader.join()
        matcher.wait_for_merges()
    assert not wrong, wrong[:5]


def test_segments_stay_few_however_rectangles_come() -> None:
    matcher = BitmapMatcher(2)
    lo, hi = rectangles(6, 60_000)
    for start in range(0, 60_000, 250):
        matcher.insert(np.arange(start, start + 250), lo[start : start + 250], hi[start : start + 250])
    matcher.wait_for_merges()
    # tiers of a factor of four and more, from a tile on: 4,096, 16,384, 65,536, and the tail
    assert len(matcher._segments) <= 4
    assert sum(map(len, matcher._segments)) == len(matcher) == 60_000


def test_what_was_deleted_leaves_the_memory() -> None:
    matcher = BitmapMatcher(2)
    lo, hi = rectangles(7, 50_000)
    matcher.insert(np.arange(50_000), lo, hi)
    full = matcher.nbytes
    matcher.delete(np.arange(49_000))
    matcher.wait_for_merges()
    assert matcher.nbytes < full / 4
    assert sorted(matcher.match(CENTRE)[1].tolist()) == brute_force(
        np.arange(49_000, 50_000), lo[49_000:], hi[49_000:], CENTRE[0]
    )
    matcher.delete(np.arange(50_000))
    matcher.wait_for_merges()
    assert len(matcher) == 0
    assert len(matcher._segments) == 1, "only the tail is left"


def test_one_id_can_come_and_go_for_ever() -> None:
    matcher = BitmapMatcher(2)
    for turn in range(10_000):
        matcher.insert(np.array([7]), *EVERYWHERE)
        if turn % 1000 == 0:
            assert matcher.match(CENTRE)[1].tolist() == [7]
        matcher.delete(np.array([7]))
    assert len(matcher._segments) == 1
    assert matcher.match(CENTRE)[1].tolist() == []


def test_a_merge_that_fails_loses_nothing_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: failures.append(arguments.exc_value))
    gather: Callable[..., object] = segment.gather

    def out_of_memory(*arguments: object) -> object:
        if not failures and threading.current_thread().name == "edn-index-merge":
            raise MemoryError
        return gather(*arguments)

    monkeypatch.setattr(bitmap, "gather", out_of_memory)
    matcher = BitmapMatcher(2)
    lo, hi = rectangles(8, 9000)
    ids = np.arange(9000)
    for start in (0, 3000, 6000):
        matcher.insert(ids[start : start + 3000], lo[start : start + 3000], hi[start : start + 3000])
        matcher.wait_for_merges()
    assert [type(failure) for failure in failures] == [MemoryError]
    assert len(matcher._segments) == 2
    assert sorted(matcher.match(CENTRE)[1].tolist()) == brute_force(ids, lo, hi, CENTRE[0])


def test_where_no_thread_can_be_had_nothing_is_merged_and_all_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    matcher = BitmapMatcher(2)
    lo, hi = rectangles(9, 6000)
    ids = np.arange(6000)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        matcher.insert(ids[:3000], lo[:3000], hi[:3000])
        matcher.insert(ids[3000:], lo[3000:], hi[3000:])
        matcher.delete(ids[:1000])
    assert len(matcher) == 5000
    assert sorted(matcher.match(CENTRE)[1].tolist()) == brute_force(
        ids[1000:], lo[1000:], hi[1000:], CENTRE[0]
    )
    matcher.insert(np.array([9000]), *EVERYWHERE)
    matcher.delete(np.array([1000]))
    matcher.wait_for_merges()
    assert len(matcher._segments) == 2, "the next change merges what was left"


@pytest.mark.parametrize("seed", range(3))
def test_columns_come_as_rectangles_constrain_them(seed: int) -> None:
    """In a wide space each rectangle constrains a few columns, one more column at a time."""
    rng = np.random.default_rng(seed)
    width, count = 40, 300
    matcher = BitmapMatcher(8)
    lo, hi = np.full((count, width), -np.inf), np.full((count, width), np.inf)
    for row in range(count):
        if row == 100:
            matcher.grow(width)
        columns = rng.choice(8 if row < 100 else min(width, 8 + row // 8), size=rng.integers(0, 3))
        one, other = rng.uniform(0, 10, (2, len(columns)))
        lo[row, columns], hi[row, columns] = np.minimum(one, other), np.maximum(one, other)
        matcher.insert(
            np.array([row]), lo[row : row + 1, : matcher.dimensions], hi[row : row + 1, : matcher.dimensions]
        )
    ids = np.arange(count)
    gone = rng.choice(count, 40, replace=False)
    matcher.delete(gone)
    alive = np.setdiff1d(ids, gone)
    points = rng.uniform(0, 10, (50, width))
    starts, found = matcher.match(points)
    for row, point in enumerate(points):
        expected = brute_force(alive, lo[alive], hi[alive], point)
        assert sorted(found[starts[row] : starts[row + 1]].tolist()) == expected
    assert all(len(segment.columns) <= width for segment in matcher._segments)


def test_an_index_without_constraints_has_no_columns() -> None:
    matcher = BitmapMatcher(256)
    matcher.insert(np.arange(70), np.full((70, 256), -np.inf), np.full((70, 256), np.inf))
    assert [len(segment.columns) for segment in matcher._segments] == [0]
    assert matcher.nbytes < 32 << 10
    assert sorted(matcher.match(np.zeros((1, 256)))[1].tolist()) == list(range(70))
