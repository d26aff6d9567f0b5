"""Matchers, summaries and routing, fed with the rectangles of real filters, against the oracle.

Their own tests draw rectangles; here the rectangles come from filters, with missing attributes, long strings
and integers that doubles cannot tell apart, and the verdict is about events, end to end.
"""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest

from dispatcher.routing.table import RoutingTable
from edn.index import known_engines, new_matcher
from edn.summary import Maximal, Summary
from tests.property.spaces import EVENTS, FILTERS, SEED, Case

TOPIC = 7


def stacked(
    case: Case, numbers: list[int]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """All rectangles of some filters: lower and upper bounds, whose they are, and whether they are exact."""
    rects = [case.bound[number].rects() for number in numbers]
    owners = np.repeat(np.array(numbers, dtype=np.int64), [len(rect.exact) for rect in rects])
    lo, hi = np.concatenate([rect.lo for rect in rects]), np.concatenate([rect.hi for rect in rects])
    return lo, hi, owners, np.concatenate([rect.exact for rect in rects])


@pytest.mark.parametrize("engine", known_engines())
def test_a_matcher_and_the_residual_check_find_exactly_what_matches(cases: list[Case], engine: str) -> None:
    for case in cases:
        lo, hi, owners, exact = stacked(case, list(range(FILTERS)))
        matcher = new_matcher(engine, case.schema.width)
        matcher.insert(np.arange(len(owners), dtype=np.int64), lo, hi)
        starts, found = matcher.match(case.batch.points)
        values = [case.schema.values(body) for body in case.batch.bodies]
        decided = np.zeros((FILTERS, EVENTS), dtype=np.bool_)
        for event in range(EVENTS):
            for rect in found[starts[event] : starts[event + 1]]:
                owner = owners[rect]
                decided[owner, event] |= exact[rect] or case.bound[owner].matches(values[event])
        wrong = np.argwhere(decided != case.expected)
        assert not len(wrong), case.contradiction(
            engine, filter=case.written[wrong[0][0]], event=case.values[wrong[0][1]]
        )


def test_a_cut_of_any_size_contains_every_matching_event(cases: list[Case]) -> None:
    chance = random.Random(SEED + 2)
    for case in cases:
        lo, hi, owners, _ = stacked(case, list(range(FILTERS)))
        maximal = Maximal(case.schema.width)
        maximal.insert(np.arange(len(owners), dtype=np.int64), lo, hi)
        summary = Summary.from_bytes(Summary.build(*maximal.rects()).to_bytes())
        matched = case.expected.any(axis=0)
        for size in {1, 2, chance.randint(1, summary.count), summary.count}:
            for way in ("waste", "level"):
                cut_lo, cut_hi = summary.cut(size, by=way)
                assert 1 <= len(cut_lo) <= size
                points = case.batch.points[:, None]
                inside = np.all((cut_lo[None] <= points) & (points <= cut_hi[None]), axis=2).any(axis=1)
                lost = (matched & ~inside).nonzero()[0]
                assert not len(lost), case.contradiction(
                    f"outside of the cut of {size} by {way}", event=case.values[lost[0]]
                )


@pytest.mark.parametrize("precision", [0.0, 0.2, 1.0])
def test_an_event_is_routed_to_every_server_that_has_a_match(cases: list[Case], precision: float) -> None:
    chance = random.Random(SEED + 3)
    for case in cases:
        table = RoutingTable(precision=precision)
        hosted: dict[str, list[int]] = {f"s{number}": [] for number in range(4)}
        for number in range(FILTERS):
            hosted[chance.choice(sorted(hosted))].append(number)
        for server, numbers in hosted.items():
            table.add(server)
            half = len(numbers) // 2
            lo, hi, _, _ = stacked(case, numbers[:half])
            assert table.accept(server, 1, 10, {TOPIC: Summary.build(lo, hi)})
            lo, hi, _, _ = stacked(case, numbers[half:])
            table.widen(server, TOPIC, lo, hi, epoch=1, seq=11)
        routed = table.route(TOPIC, case.batch.points)
        for column, server in enumerate(table.servers):
            needed = case.expected[hosted[server]].any(axis=0)
            lost = (needed & ~routed[:, column]).nonzero()[0]
            assert not len(lost), case.contradiction(f"not routed to {server}", event=case.values[lost[0]])
