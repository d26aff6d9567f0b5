"""Filters in XPath against libxml2's own verdict, and their rectangles against the verdicts.

`XPATH_PAIRS` (filter, event) pairs are drawn; the long run draws more of them.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from edn.errors import InvalidFilter
from edn.model.filter import BoundFilter, Filter
from edn.model.schema import Schema
from edn.summary import Summary
from tests.property.expressions import SCHEMA, Writer, draw_event, nested, verdict, xml

PAIRS = 6_000
LONG = 200_000
EVENTS = 60


@dataclass(frozen=True)
class Drawn:
    filters: list[tuple[str, BoundFilter]]
    points: npt.NDArray[np.float64]
    #: (filters, events)
    ours: npt.NDArray[np.bool_]
    theirs: npt.NDArray[np.bool_]
    refused: int

    def point_is_inside(self, place: int) -> npt.NDArray[np.bool_]:
        rects = self.filters[place][1].rects()
        assert not rects.exact.any()
        hit = (rects.lo[None] <= self.points[:, None]) & (self.points[:, None] <= rects.hi[None])
        return np.asarray(np.all(hit, axis=2).any(axis=1))


def draw(pairs: int, seed: int) -> Drawn:
    chance = random.Random(seed)
    schema = Schema.parse(SCHEMA)
    events = [draw_event(chance) for _ in range(EVENTS)]
    batch = schema.decode_events(json.dumps([nested(event) for event in events]).encode())
    values = [schema.values(body) for body in batch.bodies]
    documents = [xml(event) for event in events]
    filters: list[tuple[str, BoundFilter]] = []
    ours, theirs = [], []
    refused = 0
    while len(filters) < pairs // EVENTS:
        expression = Writer(chance).condition()
        try:
            bound = Filter.parse({"$xpath": expression}).bind(schema)
        except InvalidFilter as error:
            if "steps per event" not in error.detail and "position" not in error.detail:
                raise AssertionError(expression) from error
            refused += 1
            continue
        filters.append((expression, bound))
        ours.append([bound.matches(event) for event in values])
        theirs.append([verdict(expression, document) for document in documents])
    return Drawn(filters, batch.points, np.array(ours), np.array(theirs), refused)


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return draw(PAIRS, 11)


def check(drawn: Drawn) -> None:
    """Every pair: the verdict is libxml2's, and what matches lies inside the filter's rectangles."""
    for place, (expression, _) in enumerate(drawn.filters):
        assert drawn.ours[place].tolist() == drawn.theirs[place].tolist(), expression
        outside = drawn.theirs[place] & ~drawn.point_is_inside(place)
        assert not outside.any(), (expression, drawn.points[outside][0])


def check_routing(drawn: Drawn, precision: float, cut: str) -> tuple[int, int]:
    """No match is missed by any summary of a few filters each; (events routed, events matched)."""
    routed_events = matched_events = 0
    for first in range(0, len(drawn.filters), 5):
        server = range(first, min(first + 5, len(drawn.filters)))
        rects = [drawn.filters[place][1].rects() for place in server]
        lo, hi = np.concatenate([one.lo for one in rects]), np.concatenate([one.hi for one in rects])
        if not len(lo):
            assert not drawn.theirs[list(server)].any()
            continue
        summary = Summary.build(lo, hi)
        count = max(1, round(precision * summary.count))
        cut_lo, cut_hi = summary.cut(count, cut)
        hit = (cut_lo[None] <= drawn.points[:, None]) & (drawn.points[:, None] <= cut_hi[None])
        routed = np.all(hit, axis=2).any(axis=1)
        matched = drawn.theirs[list(server)].any(axis=0)
        assert not (matched & ~routed).any()
        routed_events += int(routed.sum())
        matched_events += int(matched.sum())
    return routed_events, matched_events


def test_the_verdict_is_libxml2s_and_matches_lie_inside_the_rectangles(drawn: Drawn) -> None:
    check(drawn)
    # Neither answer is rare, and nearly everything drawn is taken.
    assert 0.1 < drawn.theirs.mean() < 0.9
    assert drawn.refused < len(drawn.filters)


def test_rectangles_say_something_about_most_filters_that_allow_it(drawn: Drawn) -> None:
    telling = [place for place in range(len(drawn.filters)) if not drawn.point_is_inside(place).all()]
    assert len(telling) > len(drawn.filters) / 5


@pytest.mark.parametrize("precision", [0.0, 0.1, 0.5, 1.0])
def test_no_match_is_routed_past_at_any_precision(drawn: Drawn, precision: float) -> None:
    routed, matched = check_routing(drawn, precision, "waste")
    assert routed >= matched > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_many_more_pairs(seed: int) -> None:
    many = draw(LONG, seed)
    check(many)
    for precision in (0.0, 0.05, 0.2, 0.4, 0.7, 1.0):
        check_routing(many, precision, "waste")
