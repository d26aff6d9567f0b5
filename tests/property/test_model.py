"""The model against the oracle on generated cases that aim at its corners.

One run draws many small spaces. In each, every filter meets every event and every other filter, so that
a few thousand parsed filters give millions of (filter, filter, event) cases; none may contradict the oracle.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import numpy.typing as npt

from edn.model.filter import Filter
from tests.oracle import cells, ranges, samples
from tests.oracle.meaning import Events
from tests.property.spaces import EVENTS, FILTERS, SEED, Case
from tests.workload import adversarial
from tests.workload.text import Writer


def inside(case: Case, number: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """For each event: is its point in a rectangle of the filter; in an exact one."""
    rects = case.bound[number].rects()
    points = case.batch.points
    hit = np.all(
        (rects.lo[None] <= points[:, None]) & (points[:, None] <= rects.hi[None]), axis=2
    )  # (events, rectangles)
    return hit.any(axis=1), (hit & rects.exact[None]).any(axis=1)


def test_every_operator_is_in_one_filter_in_a_hundred(cases: list[Case]) -> None:
    operator, share = adversarial.rarest_share([written for case in cases for written in case.written])
    assert share >= 0.01, f"{operator} is in {share:.2%} of the filters"


def test_values_of_a_stored_body_are_those_that_were_sent(cases: list[Case]) -> None:
    for case in cases:
        for body, values in zip(case.batch.bodies, case.values, strict=True):
            assert case.schema.values(body) == values, case.contradiction("values", body=body)


def test_matching_is_what_the_oracle_says(cases: list[Case]) -> None:
    compared = 0
    for case in cases:
        values = [case.schema.values(body) for body in case.batch.bodies]
        for number, bound in enumerate(case.bound):
            for place, (event, expected) in enumerate(zip(values, case.expected[number], strict=True)):
                assert bound.matches(event) == expected, case.contradiction(
                    "matches", filter=case.written[number], event=case.values[place], expected=expected
                )
                compared += 1
    matched = sum(int(case.expected.sum()) for case in cases)
    assert compared >= 200_000
    assert 0.1 < matched / compared < 0.9  # both answers are asked for often


def test_text_and_json_forms_mean_the_same(cases: list[Case]) -> None:
    for case in cases:
        values = [case.schema.values(body) for body in case.batch.bodies]
        for number, written in enumerate(case.written):
            text = Filter.parse(written).to_text()
            again = Filter.parse(text)
            assert again == Filter.parse(written), case.contradiction("text", filter=written, text=text)
            assert Filter.parse(again.to_json()) == again
            bound = again.bind(case.schema)
            found = [bound.matches(event) for event in values]
            assert found == case.expected[number].tolist(), case.contradiction(
                "text", filter=written, text=text
            )


def test_text_written_from_the_grammar_is_read_as_meant(cases: list[Case]) -> None:
    chance = random.Random(SEED + 4)
    compared = 0
    for case in cases:
        values = [case.schema.values(body) for body in case.batch.bodies]
        for number, written in enumerate(case.written):
            text = Writer(chance).write(written)
            bound = Filter.parse(text).bind(case.schema)
            found = [bound.matches(event) for event in values]
            assert found == case.expected[number].tolist(), case.contradiction(
                "text", filter=written, text=text
            )
            compared += len(found)
    assert compared >= 200_000


def test_rectangles_contain_what_matches_and_exact_ones_nothing_else(cases: list[Case]) -> None:
    inside_exact = matched = 0
    for case in cases:
        assert case.batch.points.shape == (EVENTS, case.schema.width)
        for number, expected in enumerate(case.expected):
            rects = case.bound[number].rects()
            assert len(rects.exact) <= 64
            any_rect, exact_rect = inside(case, number)
            lost = (expected & ~any_rect).nonzero()[0]
            assert not len(lost), case.contradiction(
                "matches outside of its rectangles",
                filter=case.written[number],
                event=case.values[lost[0]] if len(lost) else None,
            )
            wrong = (exact_rect & ~expected).nonzero()[0]
            assert not len(wrong), case.contradiction(
                "does not match, but is inside an exact rectangle",
                filter=case.written[number],
                event=case.values[wrong[0]] if len(wrong) else None,
            )
            inside_exact += int(exact_rect.sum())
            matched += int(expected.sum())
    assert inside_exact > matched / 2  # most rectangles are exact, or the flag is worth nothing


def test_covering_is_never_contradicted_by_an_event(cases: list[Case]) -> None:
    chance = random.Random(SEED + 1)
    compared = claimed = 0
    for case in cases:
        for first in range(FILTERS):
            for second in range(FILTERS):
                compared += EVENTS
                if not case.bound[first].covers(case.bound[second]):
                    continue
                escaped = (case.expected[second] & ~case.expected[first]).nonzero()[0]
                event = case.values[escaped[0]] if len(escaped) else None
                claimed += first != second
                if event is None and first != second and claimed % 5 == 0:  # the search costs far more
                    event = samples.counterexample(
                        case.written[first], case.written[second], case.space.attributes, chance, tries=40
                    )
                assert event is None, case.contradiction(
                    "covers", first=case.written[first], second=case.written[second], event=event
                )
    assert compared >= 200_000
    assert claimed >= 500


def test_covering_is_complete_for_ranges_equalities_and_prefixes(cases: list[Case]) -> None:
    decided = covering = 0
    for case in cases:
        sets = [ranges.intervals(written, case.space.attributes) for written in case.written]
        for first, first_set in enumerate(sets):
            for second, second_set in enumerate(sets):
                if first_set is None or second_set is None:
                    continue
                decided += 1
                expected = ranges.covers(first_set, second_set)
                covering += expected and first != second
                # Outside of its completeness the answer may be no; inside it the answer is the exact one.
                assert case.bound[first].covers(case.bound[second]) == expected, case.contradiction(
                    f"covers should be {expected}", first=case.written[first], second=case.written[second]
                )
    assert decided >= 10_000
    assert covering >= 200


def test_covering_and_overlap_are_decided_exactly_without_suffix_and_contains(cases: list[Case]) -> None:
    decided = covering = apart = 0
    for case in cases:
        for first, second in itertools.product(range(0, FILTERS, 5), repeat=2):
            one, other = case.written[first], case.written[second]
            try:
                events = Events(
                    cells.representatives([one, other], case.space.attributes, limit=1500),
                    case.space.attributes,
                )
            except cells.NotDecided:
                continue
            decided += 1
            in_one, in_other = events.matching(one), events.matching(other)
            covered, shared = not (in_other & ~in_one).any(), bool((in_one & in_other).any())
            covering += covered and first != second
            apart += not shared
            assert case.bound[first].covers(case.bound[second]) == covered, case.contradiction(
                f"covers should be {covered}", first=one, second=other
            )
            assert case.bound[first].overlaps(case.bound[second]) == shared, case.contradiction(
                f"overlaps should be {shared}", first=one, second=other
            )
    assert decided >= 1_500
    assert covering >= 100
    assert apart >= 100


def test_filters_that_share_an_event_overlap(cases: list[Case]) -> None:
    shared = 0
    for case in cases:
        common = (case.expected[:, None, :] & case.expected[None, :, :]).any(axis=2)
        for first, second in np.argwhere(common)[:: max(1, int(common.sum()) // 500)]:
            shared += 1
            assert case.bound[first].overlaps(case.bound[second]), case.contradiction(
                "overlaps", first=case.written[first], second=case.written[second]
            )
    assert shared >= 2_000
