"""The checker on topics that enforce advertisements: which acceptances and refusals some order explains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edn.tools.checker import Recorder, Report, check_recording

ATTRIBUTES = {"n": "integer", "s": "string"}
ADVERTISEMENT = {"n": [{"gte": 1, "lte": 9}], "s": "any"}
COVERED, OTHER = {"n": 5}, {"n": 50}

#: (kind, begin, end, answer): an answer is ok, refused, dropped or unknown
Call = tuple[str, int, int, str]


def check(tmp_path: Path, calls: list[Call], event: dict[str, Any] = COVERED, mode: str = "guard") -> Report:
    """Record calls at the given times, in any order of their answers, and check them."""
    now = [0]
    path = tmp_path / "run.jsonl"
    with Recorder(path, clock=lambda: now[0], wall_clock=lambda: 0) as recorder:
        recorder.topic("t", ATTRIBUTES, advertising=mode)
        steps: list[tuple[int, Any]] = []
        for number, (kind, begin, end, answer) in enumerate(calls):
            fields: dict[str, Any] = {"advertisement": "a", "publisher": "p"}
            if kind == "advertise":
                fields |= {"topic": "t", "declares": ADVERTISEMENT}
            elif kind == "publish":
                fields = {"topic": "t", "publisher": "p", "events": [{"$id": f"e{number}", **event}]}
            operation = recorder.operation(kind, **fields)  # type: ignore[arg-type]  # a kind of the table

            def finish(operation: Any = operation, answer: str = answer, number: int = number) -> None:
                match answer:
                    case "ok":
                        operation.ok(**({"ids": [f"e{number}"]} if operation._invoke.events else {}))
                    case "dropped":
                        operation.ok(ids=[], unadvertised=[0])
                    case "refused":
                        operation.fail(status=422, reason="unadvertised")
                    case "unknown":
                        operation.unknown()

            steps += [(begin, operation.__enter__), (end, finish)]
        for time, step in sorted(steps, key=lambda one: one[0]):
            now[0] = time
            step()
    return check_recording(path)


ACCEPTED, REFUSED = "unadvertised", "refused"


@pytest.mark.parametrize(
    ("calls", "fault"),
    [
        ([("publish", 1, 2, "ok")], ACCEPTED),
        ([("publish", 1, 2, "refused")], None),
        ([("advertise", 1, 2, "ok"), ("publish", 3, 4, "ok")], None),
        ([("advertise", 1, 2, "ok"), ("publish", 3, 4, "refused")], REFUSED),
        ([("advertise", 1, 4, "ok"), ("publish", 2, 3, "ok")], None),
        ([("advertise", 1, 4, "ok"), ("publish", 2, 3, "refused")], None),
        ([("advertise", 1, 9, "ok"), ("publish", 2, 3, "ok"), ("publish", 4, 5, "refused")], REFUSED),
        ([("advertise", 1, 9, "ok"), ("publish", 2, 3, "refused"), ("publish", 4, 5, "ok")], None),
        ([("advertise", 5, 6, "ok"), ("publish", 1, 2, "ok")], ACCEPTED),
        ([("advertise", 1, 2, "ok"), ("unadvertise", 3, 4, "ok"), ("publish", 5, 6, "ok")], ACCEPTED),
        ([("advertise", 1, 2, "ok"), ("unadvertise", 3, 4, "ok"), ("publish", 5, 6, "refused")], None),
        ([("advertise", 1, 2, "ok"), ("unadvertise", 3, 6, "ok"), ("publish", 4, 5, "ok")], None),
        ([("advertise", 1, 2, "ok"), ("unadvertise", 3, 6, "ok"), ("publish", 4, 5, "refused")], None),
        (
            [
                ("advertise", 1, 2, "ok"),
                ("unadvertise", 3, 9, "ok"),
                ("publish", 4, 5, "refused"),
                ("publish", 6, 7, "ok"),
            ],
            REFUSED,
        ),
        ([("advertise", 1, 2, "unknown"), ("publish", 3, 4, "ok")], None),
        ([("advertise", 1, 2, "unknown"), ("publish", 3, 4, "refused")], None),
        (
            [("advertise", 1, 2, "unknown"), ("publish", 3, 4, "ok"), ("publish", 5, 6, "refused")],
            REFUSED,
        ),
        (
            [("advertise", 1, 2, "ok"), ("unadvertise", 3, 4, "unknown"), ("publish", 5, 6, "ok")],
            None,
        ),
    ],
)
def test_each_outcome_is_judged_by_the_orders_of_the_calls(
    tmp_path: Path, calls: list[Call], fault: str | None
) -> None:
    report = check(tmp_path, calls)
    assert report.faults == ({} if fault is None else {fault: 1}), report.text()
    assert report.verdict == ("holds" if fault is None else "violated")


def test_dropped_events_are_judged_like_refused_ones(tmp_path: Path) -> None:
    calls: list[Call] = [("advertise", 1, 2, "ok"), ("publish", 3, 4, "dropped")]
    assert check(tmp_path, calls, mode="deliver").faults == {REFUSED: 1}
    assert check(tmp_path, calls, OTHER, mode="deliver").verdict == "holds"


def test_an_event_beyond_the_advertisement_must_be_refused(tmp_path: Path) -> None:
    calls: list[Call] = [("advertise", 1, 2, "ok"), ("publish", 3, 4, "ok")]
    assert check(tmp_path, calls, OTHER).faults == {ACCEPTED: 1}
    assert check(tmp_path, calls, {"n": 5, "s": "x"}).verdict == "holds"


def test_a_topic_without_enforcement_is_not_judged(tmp_path: Path) -> None:
    assert check(tmp_path, [("publish", 1, 2, "ok")], mode="off").faults == {}
