"""Online placement: limits, ties and policies, and each choice against its definition."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.errors import InvalidInput
from partitioning.boxes import BoxTable
from partitioning.online import (
    POLICIES,
    LeastLoaded,
    Limits,
    Placement,
    Random,
    Settings,
    new_placement,
)

INF = float("inf")
#: no start by chance: content decides from the first subscription on
AT_ONCE = Settings(spread=0)


def box(*sides: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    lo, hi = zip(*sides, strict=True)
    return np.array(lo), np.array(hi)


def told(policy: Placement, **boxes: tuple[np.ndarray, np.ndarray]) -> Placement:
    for server, (lo, hi) in boxes.items():
        policy.summarise(server, np.atleast_2d(lo), np.atleast_2d(hi))
    return policy


def test_the_least_loaded_server_is_chosen() -> None:
    assert LeastLoaded().place({"a": 3, "b": 1, "c": 2}) == "b"


def test_equal_loads_are_broken_by_chance() -> None:
    policy = LeastLoaded(random.Random(1))
    chosen = {policy.place({"a": 1, "b": 1, "c": 5}) for _ in range(50)}
    assert chosen == {"a", "b"}


def test_random_ignores_loads() -> None:
    policy = Random(random.Random(1))
    chosen = {policy.place({"a": 0, "b": 1000}) for _ in range(50)}
    assert chosen == {"a", "b"}


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="kmeans, least-loaded, random, rtree, traffic"):
        new_placement("best")


@pytest.mark.parametrize(
    ("limits", "loads", "allowed"),
    [
        (Limits(), {"a": 9, "b": 0}, ["a", "b"]),
        (Limits(threshold=10), {"a": 9, "b": 10, "c": 3}, ["a", "c"]),
        # 12 + 1 on 3 servers: the average will be 13 / 3, so 1.5 × allows 6.5
        (Limits(factor=1.5), {"a": 5, "b": 6, "c": 1}, ["a", "c"]),
        (Limits(threshold=2, factor=9.0), {"a": 1, "b": 2}, ["a"]),
        # nobody is below: the least loaded
        (Limits(threshold=1), {"a": 4, "b": 3, "c": 3}, ["b", "c"]),
        (Limits(factor=1.0), {"a": 2, "b": 2}, ["a", "b"]),
    ],
)
def test_limits_exclude_servers_and_never_all(
    limits: Limits, loads: dict[str, int], allowed: list[str]
) -> None:
    assert limits.candidates(loads) == allowed


@pytest.mark.parametrize("name", ["random", "rtree", "kmeans", "traffic"])
def test_a_server_at_the_threshold_gets_nothing(name: str) -> None:
    policy = new_placement(name, settings=Settings(limits=Limits(threshold=5), spread=0))
    told(policy, a=box((0, 10), (0, 10)))
    assert policy.place({"a": 5, "b": 4}, *box((1, 2), (1, 2))) == "b"


@pytest.mark.parametrize("name", ["rtree", "kmeans", "traffic"])
def test_without_a_rectangle_the_least_loaded_is_taken(name: str) -> None:
    assert new_placement(name).place({"a": 3, "b": 1}) == "b"


def test_the_largest_overlap_by_volume_wins_over_the_better_fit() -> None:
    policy = told(
        new_placement("rtree", settings=AT_ONCE),
        # half of the new rectangle, in a rectangle much larger than it
        large=box((0, 6), (0, 100)),
        # a fifth of it, in a rectangle that fits it well
        near=box((5, 8), (4, 6)),
    )
    assert policy.place({"large": 90, "near": 10}, *box((1, 11), (0, 10))) == "large"


def test_equal_overlaps_go_to_the_less_loaded() -> None:
    policy = told(new_placement("rtree", settings=AT_ONCE), a=box((0, 10)), b=box((0, 20)), c=box((5, 6)))
    assert policy.place({"a": 7, "b": 5, "c": 0}, *box((1, 8))) == "b"


def test_where_nothing_overlaps_the_less_loaded_is_taken() -> None:
    policy = told(new_placement("rtree", settings=AT_ONCE), a=box((0, 1)), b=box((3, 4)))
    assert policy.place({"a": 7, "b": 5}, *box((8, 9))) == "b"


def test_a_placement_counts_for_the_next() -> None:
    policy = new_placement("rtree", settings=AT_ONCE, rng=random.Random(0))
    loads = {"a": 0, "b": 1}
    assert policy.place(loads, *box((0, 2))) == "a"
    loads["a"] = 50
    assert policy.place(loads, *box((1, 3))) == "a"


def test_the_first_subscriptions_of_each_server_are_spread_by_chance() -> None:
    policy = new_placement("rtree", rng=random.Random(3))
    loads = dict.fromkeys("abc", 0)
    for _ in range(30):
        loads[policy.place(loads, *box((0, 1)))] += 1
    assert loads == {"a": 10, "b": 10, "c": 10}


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        # `open` has a tenth of the second side, `shut` all of it
        ((0, 10), "shut"),
        # both have all of it, and `open` has the first one whole: beyond 100, and where it is missing
        ((0, 1), "open"),
    ],
)
def test_infinite_sides_count_as_long_as_the_range_that_was_seen(
    second: tuple[float, float], expected: str
) -> None:
    policy = told(
        new_placement("rtree", settings=AT_ONCE),
        open=box((-INF, INF), (0, 1)),
        shut=box((0, 100), (0, 10)),
    )
    assert policy.place({"open": 9, "shut": 9}, *box((-INF, INF), second)) == expected


def test_several_rectangles_count_as_their_bounding_rectangle() -> None:
    policy = told(new_placement("rtree", settings=AT_ONCE), a=box((4, 5)), b=box((0, 1)))
    lo, hi = np.array([[0.0], [9.0]]), np.array([[1.0], [9.5]])
    # The bounding rectangle [0, 9.5] overlaps as much with a as with b.
    assert policy.place({"a": 0, "b": 5}, lo, hi) == "a"


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        # far: 2 of 10 outside × 10; near: 8 of 10 outside × 1
        ((0, 10), "near"),
        # inside far: nothing is added there
        ((3, 4), "far"),
    ],
)
def test_least_added_traffic_weighs_by_distance(side: tuple[float, float], expected: str) -> None:
    weighted = Settings(spread=0, distances={"far": 10.0})
    policy = told(new_placement("traffic", settings=weighted), far=box((0, 8)), near=box((0, 2)))
    assert policy.place({"far": 20, "near": 20}, *box(side)) == expected


def test_the_nearest_mean_wins_and_moves() -> None:
    policy = told(new_placement("kmeans", settings=AT_ONCE), a=box((0, 2)), b=box((9, 11)))
    loads = {"a": 1, "b": 1}
    # centres 1 and 10: 5 is nearer to a, whose mean becomes 3; then 5.5 of 3 and 10 still is a's
    assert policy.place(loads, *box((4, 6))) == "a"
    assert policy.place(loads, *box((5, 6))) == "a"
    assert policy.place(loads, *box((7, 8))) == "b"


@pytest.mark.parametrize("name", ["rtree", "kmeans", "traffic"])
def test_a_suggestion_is_what_would_be_placed_and_counts_for_nothing(name: str) -> None:
    policy = told(new_placement(name, settings=AT_ONCE), a=box((0, 10)), b=box((20, 30)))
    loads = {"a": 9, "b": 9}
    for _ in range(3):
        assert policy.suggest(loads, *box((25, 26))) == "b"
    assert policy.place(loads, *box((25, 26))) == "b"


@pytest.mark.parametrize(
    ("policy", "side"),
    [
        # nothing of the kind is anywhere
        (told(new_placement("rtree", settings=AT_ONCE), a=box((0, 1))), (8, 9)),
        (told(new_placement("traffic", settings=AT_ONCE), a=box((0, 1))), (8, 9)),
        (new_placement("kmeans", settings=AT_ONCE), (8, 9)),
        # the start is not content's business
        (told(new_placement("rtree"), a=box((0, 10))), (8, 9)),
        (LeastLoaded(), (8, 9)),
        (Random(), (8, 9)),
    ],
)
def test_where_content_says_nothing_nobody_is_suggested(policy: Placement, side: tuple[float, float]) -> None:
    assert policy.suggest({"a": 3, "b": 1}, *box(side)) is None


def test_what_others_chose_counts_for_the_next() -> None:
    for name in ("rtree", "kmeans", "traffic"):
        policy = told(new_placement(name, settings=AT_ONCE), a=box((0, 1)))
        policy.placed("b", *box((20, 30)))
        assert policy.place({"a": 5, "b": 5}, *box((25, 26))) == "b", name


def test_the_start_is_counted_topic_by_topic() -> None:
    """Servers that are full of other topics still share the first of this one."""
    policy = new_placement("rtree", settings=Settings(spread=2))
    loads = {"a": 100, "b": 103}
    chosen = []
    for _ in range(4):
        chosen.append(policy.place(loads, *box((0, 1))))
        loads[chosen[-1]] += 1
    assert sorted(chosen) == ["a", "a", "b", "b"]


def test_a_server_that_is_forgotten_attracts_nothing() -> None:
    for name in ("rtree", "kmeans", "traffic"):
        policy = told(new_placement(name, settings=AT_ONCE), a=box((0, 10)), b=box((20, 30)))
        policy.forget("a")
        assert policy.place({"a": 5, "b": 5}, *box((21, 22))) == "b", name


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_server_that_nothing_is_known_of_can_be_forgotten(name: str) -> None:
    """A server that registers and hosts nothing yet."""
    policy = new_placement(name, settings=AT_ONCE)
    policy.forget("new")
    policy.summarise("newer", np.empty((0, 1)), np.empty((0, 1)))
    assert policy.place({"new": 0}, *box((0, 1))) == "new"


@pytest.mark.parametrize("name", ["rtree", "kmeans", "traffic"])
def test_servers_with_a_place_attract_those_who_are_near(name: str) -> None:
    placed = Settings(spread=0, affinity={"west": [0.0, 0.0], "east": [100.0, 0.0]})
    policy = new_placement(name, settings=placed, rng=random.Random(1))
    rng = np.random.default_rng(0)
    loads = {"west": 0, "east": 0}
    right = 0
    for _ in range(40):
        home = "west" if rng.random() < 0.5 else "east"
        location = np.array(placed.affinity[home]) + rng.normal(0, 3, 2)
        a, b = sorted(rng.random(2) * 10)
        chosen = policy.place(loads, *box((a, b)), location=location.tolist())
        loads[chosen] += 1
        right += chosen == home
    assert right >= 36


def test_a_location_of_another_size_is_refused() -> None:
    policy = new_placement("rtree", settings=Settings(affinity={"a": [1.0, 2.0]}))
    with pytest.raises(InvalidInput, match="2 finite coordinates"):
        policy.place({"a": 0}, *box((0, 1)), location=[1.0])


def test_a_topic_that_gets_an_attribute_goes_on() -> None:
    for name in ("rtree", "kmeans", "traffic"):
        policy = new_placement(name, settings=AT_ONCE)
        loads = {"a": 0, "b": 1}
        assert policy.place(loads, *box((0, 1))) == "a"
        assert policy.place({"a": 3, "b": 1}, *box((0, 1), (5, 6))) == "a", name


def test_rectangles_from_before_an_attribute_came_are_unconstrained_in_it() -> None:
    """Also where their places in the table were another server's, whose rectangles knew it."""
    table = BoxTable(8)
    for server, side in (("a", (0, 1)), ("b", (5, 6))):
        lo, hi = box(side, side)
        table.replace(server, lo[None], hi[None])
    lo, hi = box((0, 1))
    table.replace("a", lo[None], hi[None])
    low, high = table.rects("a")
    assert (low.tolist(), high.tolist()) == ([[0.0, -INF]], [[1.0, INF]])
    assert [side.tolist() for side in table.rects("b")] == [[[5.0, 5.0]], [[6.0, 6.0]]]


def test_more_rectangles_than_the_table_keeps_are_refused_and_change_nothing() -> None:
    table = BoxTable(1)
    lo, hi = box((0, 1))
    table.replace("a", lo[None], hi[None])
    with pytest.raises(ValueError, match="a must have at most 1 rectangles, got 2"):
        table.replace("a", np.zeros((2, 1)), np.ones((2, 1)))
    assert table._counts[table.number("a")] == len(table.rects("a")[0]) == 1


@st.composite
def boxes(draw: st.DrawFn, d: int) -> tuple[list[float], list[float]]:
    bounds = st.one_of(st.integers(0, 8).map(float), st.sampled_from([-INF, INF]))
    pairs = [sorted((draw(bounds), draw(bounds))) for _ in range(d)]
    # A side from +inf to +inf is none that a filter can have.
    pairs = [(low if low < INF else 8.0, high) for low, high in pairs]
    return [low for low, _ in pairs], [high for _, high in pairs]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_overlaps_are_those_of_a_plain_loop(data: st.DataObject) -> None:
    d = data.draw(st.integers(1, 3))
    table = BoxTable(None)
    held = {server: data.draw(st.lists(boxes(d), max_size=5)) for server in ("a", "b", "c")}
    new_lo, new_hi = data.draw(boxes(d))
    seen = [(new_lo, new_hi), *(one for some in held.values() for one in some)]
    finite = [[x for lo, hi in seen for x in (lo[j], hi[j]) if abs(x) < INF] for j in range(d)]
    for server, some in held.items():
        lo, hi = np.array([lo for lo, _ in some]), np.array([hi for _, hi in some])
        table.replace(server, lo.reshape(-1, d), hi.reshape(-1, d))
    found, own = table.overlaps(np.array(new_lo), np.array(new_hi))

    def length(low: float, high: float, j: int) -> float:
        base, top = (min(finite[j]), max(finite[j])) if finite[j] else (0.0, 0.0)
        if base == top:
            base, top = base - 0.5, top + 0.5
        scale = 2.0
        while scale / 2 > top - base:
            scale /= 2
        while scale <= top - base:
            scale *= 2
        at = base - scale / 16 if low == -INF else min(max(low, base), top)
        end = base - scale / 32 if high == -INF else min(max(high, base), top)
        return max((end - at) / scale, 2.0**-20)

    def shared(lo: list[float], hi: list[float]) -> float:
        volume = 1.0
        for j in range(d):
            low, high = max(lo[j], new_lo[j]), min(hi[j], new_hi[j])
            if low > high:
                return 0.0
            volume *= length(low, high, j)
        return volume

    assert own == pytest.approx(shared(new_lo, new_hi))
    for server, some in held.items():
        best = max((shared(lo, hi) for lo, hi in some), default=0.0)
        assert found[table.number(server)] == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(st.lists(boxes(2), min_size=1, max_size=30), st.integers(1, 4))
def test_a_bounded_table_covers_all_that_was_added(
    some: list[tuple[list[float], list[float]]], bound: int
) -> None:
    table = BoxTable(bound)
    for lo, hi in some:
        table.add("a", np.array(lo), np.array(hi))
    low, high = table.rects("a")
    assert 1 <= len(low) <= bound
    for lo, hi in some:
        assert ((low <= lo) & (high >= hi)).all(axis=1).any()


def test_ties_go_to_the_less_loaded_unless_chance_is_asked_for() -> None:
    wide = box((0.0, 10.0), (0.0, 10.0))
    inside = box((2.0, 3.0), (2.0, 3.0))

    def chosen(settings: Settings) -> set[str]:
        policy = told(new_placement("rtree", settings=settings, rng=random.Random(1)), a=wide, b=wide)
        return {policy.place({"a": 9, "b": 3}, *inside) for _ in range(50)}

    assert chosen(AT_ONCE) == {"b"}
    assert chosen(Settings(spread=0, ties="random")) == {"a", "b"}
