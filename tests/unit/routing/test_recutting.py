"""A table rebuilt in the background routes like one cut in place, for any changes between plan and apply."""

from __future__ import annotations

import numpy as np
import pytest

from dispatcher.routing.table import RoutingTable
from edn.summary import Summary
from edn.tools.bench.workloads import uniform_points, uniform_rectangles

TOPIC, OTHER = 7, 8
PRECISIONS = (0.0, 0.05, 0.3, 1.0)


def summary(seed: int, n: int = 60) -> Summary:
    return Summary.build(*uniform_rectangles(np.random.default_rng(seed), n, 3))


def table(router: str = "bitmap", precision: float = 1.0) -> RoutingTable:
    made = RoutingTable(router=router, precision=precision)
    for number, server in enumerate("abc"):
        made.add(server)
        made.accept(server, 1, 1, {TOPIC: summary(number), OTHER: summary(10 + number)})
    made.widen("a", TOPIC, [[1.0, 1.0, 1.0]], [[1.5, 1.5, 1.5]], epoch=1, seq=2)
    return made


POINTS = uniform_points(np.random.default_rng(99), 500, 3)


def same(one: RoutingTable, other: RoutingTable) -> bool:
    return all(
        one.servers == other.servers and (one.route(topic, POINTS) == other.route(topic, POINTS)).all()
        for topic in (TOPIC, OTHER)
    )


@pytest.mark.parametrize("router", ["bitmap", "rtree"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_plan_that_is_applied_routes_as_if_it_had_been_cut_in_place(router: str, precision: float) -> None:
    beside, in_place = table(router), table(router, precision)
    recut = beside.plan(precision)
    before = beside.route(TOPIC, POINTS)
    recut.run()
    assert (beside.route(TOPIC, POINTS) == before).all()
    assert beside.is_current(recut)
    beside.apply(recut)
    assert same(beside, in_place)
    assert {beside.describe(server).precision for server in "abc"} == {precision}


def test_from_nothing_and_back() -> None:
    there, never = table(), table()
    for precision in (0.0, 0.3, 0.0, 1.0):
        recut = there.plan(precision)
        recut.run()
        there.apply(recut)
    assert same(there, never)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda made: made.accept("b", 1, 5, {TOPIC: summary(50), OTHER: summary(51)}),
        lambda made: made.accept("b", 1, 5, {TOPIC: summary(50)}),
        lambda made: made.accept("b", 1, 5, {}),
        lambda made: made.remove("a"),
        lambda made: (made.add("d"), made.accept("d", 1, 1, {TOPIC: summary(60)})),
        lambda made: made.add("d"),
        lambda made: made.widen("c", TOPIC, [[9.0, 9.0, 9.0]], [[9.9, 9.9, 9.9]], epoch=1, seq=9),
        lambda made: made.widen("c", 99, [[9.0, 9.0, 9.0]], [[9.9, 9.9, 9.9]], epoch=1, seq=9),
    ],
    ids=[
        "summary",
        "topic gone",
        "all gone",
        "server gone",
        "new server",
        "unknown server",
        "widened",
        "topic",
    ],
)
def test_what_comes_while_a_plan_is_worked_off_is_not_lost(meanwhile, precision: float) -> None:  # type: ignore[no-untyped-def]  # one of the lambdas above
    beside, in_place = table(), table(precision=precision)
    recut = beside.plan(precision)
    recut.run()
    meanwhile(beside)
    beside.apply(recut)
    meanwhile(in_place)
    assert same(beside, in_place)
    beside.add("e")
    in_place.add("e")
    beside.accept("e", 1, 1, {TOPIC: summary(70)})
    in_place.accept("e", 1, 1, {TOPIC: summary(70)})
    assert same(beside, in_place)


def test_a_plan_that_was_not_worked_off_is_refused() -> None:
    made = table()
    with pytest.raises(ValueError, match="has not run"):
        made.apply(made.plan(0.5))
