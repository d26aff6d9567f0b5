"""The guarantees of the routing table, case by case."""

from __future__ import annotations

import numpy as np
import pytest

from dispatcher.routing.table import RoutingTable
from dispatcher.routing.topic_routes import TAIL
from edn.summary import Summary
from edn.tools.bench.workloads import uniform_points, uniform_rectangles

INF = float("inf")
TOPIC = 7


def summary(*rects: tuple[float, float]) -> Summary:
    """One-dimensional rectangles."""
    return Summary.build(np.array([[low] for low, _ in rects]), np.array([[high] for _, high in rects]))


def points(*values: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array(values)[:, None]


@pytest.fixture
def table() -> RoutingTable:
    made = RoutingTable()
    made.add("a")
    return made


def routed(table: RoutingTable, *values: float, topic: int = TOPIC) -> list[bool]:
    column: list[bool] = table.route(topic, points(*values))[:, 0].tolist()
    return column


def widen(
    table: RoutingTable, low: float, high: float, *, seq: int, epoch: int = 1, topic: int = TOPIC
) -> None:
    table.widen("a", topic, [[low]], [[high]], epoch=epoch, seq=seq)


def test_a_server_of_which_nothing_is_known_gets_everything(table: RoutingTable) -> None:
    widen(table, 0, 1, seq=1)
    assert routed(table, 0.5, 99.0) == [True, True]
    assert table.describe("a").everything


def test_a_snapshot_without_the_topic_means_that_nobody_there_wants_it(table: RoutingTable) -> None:
    assert table.accept("a", 1, 1, {})
    assert routed(table, 0.5) == [False]
    assert table.accept("a", 1, 1, {TOPIC: Summary.build(np.empty((0, 1)), np.empty((0, 1)))})
    assert routed(table, 0.5) == [False]


def test_events_go_where_the_summary_contains_them(table: RoutingTable) -> None:
    table.accept("a", 1, 1, {TOPIC: summary((0, 1), (5, 6))})
    assert routed(table, 0.0, 1.0, 2.0, 5.5, -INF) == [True, True, False, True, False]
    assert routed(table, 0.5, topic=TOPIC + 1) == [False]


def test_a_widening_counts_at_once_and_until_a_snapshot_contains_it(table: RoutingTable) -> None:
    table.accept("a", 1, 1, {})
    widen(table, 0, 1, seq=5)
    assert routed(table, 0.5) == [True]
    assert table.accept("a", 1, 4, {})
    assert routed(table, 0.5) == [True]
    assert table.describe("a").topics[TOPIC].widenings == 1
    assert table.accept("a", 1, 5, {})
    assert routed(table, 0.5) == [False]
    assert table.describe("a").topics == {}


def test_a_widening_that_is_covered_already_outlives_a_narrower_snapshot(table: RoutingTable) -> None:
    table.accept("a", 1, 1, {TOPIC: summary((0, 10))})
    widen(table, 2, 3, seq=3)
    assert table.accept("a", 1, 2, {})
    assert routed(table, 2.5, 9.0) == [True, False]


def test_a_later_epoch_is_later_whatever_its_seq(table: RoutingTable) -> None:
    table.accept("a", 1, 100, {})
    widen(table, 0, 1, epoch=2, seq=1)
    assert table.accept("a", 1, 200, {})
    assert routed(table, 0.5) == [True]
    assert table.accept("a", 2, 1, {})
    assert routed(table, 0.5) == [False]


@pytest.mark.parametrize(
    ("epoch", "seq", "taken"), [(2, 10, True), (2, 11, True), (3, 0, True), (2, 9, False), (1, 99, False)]
)
def test_a_snapshot_older_than_the_accepted_one_is_refused(
    table: RoutingTable, epoch: int, seq: int, taken: bool
) -> None:
    table.accept("a", 2, 10, {TOPIC: summary((0, 1))})
    assert table.accept("a", epoch, seq, {}) is taken
    assert routed(table, 0.5) == [not taken]
    assert table.describe("a").epoch == (epoch if taken else 2)


@pytest.mark.parametrize(
    ("precision", "count", "rectangles"),
    [(1.0, 30, 30), (0.1, 30, 3), (0.7, 10, 7), (0.25, 10, 3), (0.01, 30, 1), (1e-9, 30, 1), (0.5, 1, 1)],
)
def test_precision_decides_how_many_rectangles_are_in_use(
    table: RoutingTable, precision: float, count: int, rectangles: int
) -> None:
    table.accept("a", 1, 1, {TOPIC: summary(*((3.0 * i, 3.0 * i + 1) for i in range(count)))})
    table.set_precision(precision)
    described = table.describe("a").topics[TOPIC]
    assert (described.maximal, described.rectangles) == (count, rectangles)
    assert all(routed(table, *(3.0 * i + 0.5 for i in range(count))))


def test_precision_zero_routes_everything_and_a_summary_is_there_when_it_is_raised(
    table: RoutingTable,
) -> None:
    table.set_precision(0.0)
    table.accept("a", 1, 1, {TOPIC: summary((0, 1), (5, 6))})
    assert routed(table, 99.0) == [True]
    assert routed(table, 99.0, topic=1) == [True]
    table.set_precision(0.5)
    assert routed(table, 0.5, 3.0, 99.0) == [True, True, False]
    table.set_precision(1.0)
    assert routed(table, 0.5, 3.0, 99.0) == [True, False, False]


def test_precision_applies_to_all_servers_present_and_future(table: RoutingTable) -> None:
    table.add("b")
    for name in ("a", "b"):
        table.accept(name, 1, 1, {TOPIC: summary((0, 1), (5, 6))})
    assert table.route(TOPIC, points(3.0)).tolist() == [[False, False]]
    table.set_precision(0.25)
    table.add("c")
    table.accept("c", 1, 1, {TOPIC: summary((0, 1), (5, 6))})
    assert table.route(TOPIC, points(3.0)).tolist() == [[True, True, True]]
    assert [table.describe(name).precision for name in table.servers] == [0.25, 0.25, 0.25]


@pytest.mark.parametrize("precision", [-0.1, 1.1, float("nan")])
def test_a_precision_that_is_none_is_refused(table: RoutingTable, precision: float) -> None:
    with pytest.raises(ValueError, match="precision"):
        table.set_precision(precision)
    with pytest.raises(ValueError, match="precision"):
        RoutingTable(precision=precision)


def test_columns_follow_the_servers(table: RoutingTable) -> None:
    table.accept("a", 1, 1, {TOPIC: summary((0, 1))})
    table.add("b")
    table.accept("b", 1, 1, {TOPIC: summary((5, 6))})
    assert table.servers == ("a", "b")
    assert table.route(TOPIC, points(0.5, 5.5)).tolist() == [[True, False], [False, True]]
    table.remove("a")
    assert table.servers == ("b",)
    assert table.route(TOPIC, points(0.5, 5.5)).tolist() == [[False], [True]]
    table.add("a")
    assert table.route(TOPIC, points(0.5, 5.5)).tolist() == [[False, True], [True, True]]


def test_adding_a_server_again_changes_nothing(table: RoutingTable) -> None:
    table.accept("a", 1, 1, {})
    table.add("a")
    assert routed(table, 0.5) == [False]


def test_a_table_without_servers_routes_nowhere() -> None:
    assert RoutingTable().route(TOPIC, points(1.0, 2.0)).shape == (2, 0)


def test_points_and_rectangles_of_different_widths_meet(table: RoutingTable) -> None:
    """Columns are only ever added: a short point lacks values, a short rectangle lacks constraints."""
    table.accept("a", 1, 1, {TOPIC: summary((0, 1))})
    table.widen("a", TOPIC, [[5.0, 7.0]], [[6.0, 8.0]], epoch=1, seq=2)
    table.widen("a", TOPIC, [[20.0, -INF]], [[21.0, -INF]], epoch=1, seq=3)
    wide = np.array([[0.5, 99.0, 99.0], [5.5, 7.5, 99.0], [5.5, 9.0, 99.0], [20.5, 0.0, 0.0]])
    assert table.route(TOPIC, wide)[:, 0].tolist() == [True, True, False, False]
    assert routed(table, 0.5, 5.5, 20.5) == [True, False, True]


def test_any_number_of_widenings_is_kept_however_they_come(table: RoutingTable) -> None:
    rng = np.random.default_rng(5)
    lo = rng.random((5 * TAIL, 2)) * 100
    hi = lo + 0.5
    table.accept("a", 1, 0, {})
    at = 0
    for size in (1, 3, TAIL - 5, 1, 1, 2, TAIL, 2 * TAIL + 1, 1, 7):
        table.widen("a", TOPIC, lo[at : at + size], hi[at : at + size], epoch=1, seq=at + 1)
        at += size
        inside = lo[:at] + 0.25
        assert table.route(TOPIC, inside).all()
    assert table.describe("a").topics[TOPIC].widenings == at
    table.accept("a", 1, 100, {})
    # The widening that began before 100 and has a higher seq than that stays whole.
    kept = table.describe("a").topics[TOPIC].widenings
    assert 0 < kept < at
    assert table.route(TOPIC, lo[at - kept : at] + 0.25).all()


def test_rectangles_given_to_it_may_be_changed_afterwards(table: RoutingTable) -> None:
    table.accept("a", 1, 1, {})
    lo, hi = np.array([[0.0]]), np.array([[1.0]])
    table.widen("a", TOPIC, lo, hi, epoch=1, seq=2)
    lo[:], hi[:] = 50.0, 51.0
    assert routed(table, 0.5, 50.5) == [True, False]


@pytest.mark.parametrize(
    ("lo", "hi"), [([[2.0]], [[1.0]]), ([[float("nan")]], [[1.0]]), ([[0.0]], [[1.0, 2.0]]), ([0.0], [1.0])]
)
def test_a_widening_that_is_no_set_of_rectangles_is_refused(
    table: RoutingTable, lo: list[list[float]], hi: list[list[float]]
) -> None:
    with pytest.raises(ValueError, match="bound"):
        table.widen("a", TOPIC, lo, hi, epoch=1, seq=1)


def test_an_unknown_server_is_a_mistake_of_the_caller(table: RoutingTable) -> None:
    with pytest.raises(KeyError):
        table.accept("z", 1, 1, {})
    with pytest.raises(KeyError):
        table.widen("z", TOPIC, [[0.0]], [[1.0]], epoch=1, seq=1)


def test_it_counts_what_it_routed_and_what_it_was_asked(table: RoutingTable) -> None:
    table.add("b")
    table.accept("a", 1, 1, {TOPIC: summary((0, 1))})
    table.route(TOPIC, points(0.5, 3.0, 4.0))
    table.route(TOPIC, points(0.5))
    assert (table.describe("a").routed, table.describe("a").asked) == (2, 4)
    assert (table.describe("b").routed, table.describe("b").asked) == (4, 4)
    for number in range(20):
        table.add(f"more {number}")
    table.route(TOPIC, points(0.5))
    assert (table.describe("a").routed, table.describe("a").asked) == (3, 5)
    assert (table.describe("more 19").routed, table.describe("more 19").asked) == (1, 1)


def test_both_routers_agree() -> None:
    rng = np.random.default_rng(6)
    tables = [RoutingTable(router=name, precision=0.3) for name in ("bitmap", "rtree")]
    asked = uniform_points(rng, 200, 5)
    for number in range(4):
        made = Summary.build(*uniform_rectangles(rng, 400, 5))
        for one in tables:
            one.add(str(number))
            one.accept(str(number), 1, 1, {TOPIC: made})
    np.testing.assert_array_equal(tables[0].route(TOPIC, asked), tables[1].route(TOPIC, asked))


def test_recent_events_shape_a_weighted_cut() -> None:
    rng = np.random.default_rng(9)
    rects = uniform_rectangles(rng, 1500, 6)
    crowd = rng.random((6000, 6)) ** 3 * 10
    hits = {}
    for cut in ("waste", "weighted"):
        one = RoutingTable(cut=cut)
        one.add("a")
        one.accept("a", 1, 1, {TOPIC: Summary.build(*rects)})
        for begin in range(0, 3000, 100):
            one.route(TOPIC, crowd[begin : begin + 100])
        one.set_precision(0.25)
        hits[cut] = int(one.route(TOPIC, crowd[3000:]).sum())
    assert hits["weighted"] < hits["waste"]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="bitmap, rtree"):
        RoutingTable(router="none")
    with pytest.raises(ValueError, match="waste"):
        RoutingTable(cut="none")
