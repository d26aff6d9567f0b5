"""The checker's reading of sequences: against the oracle, and with violations planted in recordings."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.sequences import Happened, completions
from tests.unit.checker.script import ADDRESS, ATTRIBUTES, TOPIC, Step, check, operation, posted, publish

A_B = [{"topic": TOPIC, "filter": {"s": "a"}}, {"topic": TOPIC, "filter": {"s": "b"}}]


def watch(begin: float, end: float, steps: list[dict[str, Any]], **members: Any) -> Step:
    sequence = {"sequence": steps, **members}
    return operation(
        "subscribe", begin, end, subscription="q", topic=TOPIC, sequence=sequence, address=ADDRESS
    )


def complete(events: list[tuple[str, dict[str, Any]]], time: float, hook: str = "") -> Step:
    shown = [
        {"topic": TOPIC, "id": id, "time": "2024-01-01T00:00:00Z", "attributes": values}
        for id, values in events
    ]
    body = {"notifications": [{"topic": TOPIC, "events": shown, "matches": [{"subscription": "q"}]}]}
    return posted(body, time, hook or "+".join(id for id, _ in events))


def history(seed: int) -> tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]]]:
    """Steps, other members, and values of events, one after the other."""
    drawn = random.Random(seed)

    def part() -> dict[str, Any]:
        return {"topic": TOPIC, "filter": {"s": drawn.choice("abc")}}

    steps: list[dict[str, Any]] = [part() for _ in range(drawn.randint(2, 3))]
    for step in steps[1:]:
        if drawn.random() < 0.4:
            step["unless"] = part()
        if drawn.random() < 0.4:
            step["times"] = drawn.randint(1, 3)
    members: dict[str, Any] = {"by": ["n"]} if drawn.random() < 0.5 else {}
    events = [{"s": drawn.choice("abc"), "n": drawn.randrange(3)} for _ in range(60)]
    return steps, members, events


def script(seed: int) -> tuple[list[Step], list[Step]]:
    """The requests of a history, and the notifications that the oracle expects."""
    steps, members, events = history(seed)
    requests = [watch(1, 2, steps, **members)]
    happened = []
    for number, values in enumerate(events):
        requests.append(publish(f"e{number}", 10 + number, 10.5 + number, **values))
        happened.append(Happened(TOPIC, values, number, "d"))
    wanted = completions({"sequence": steps, **members}, {TOPIC: ATTRIBUTES}, happened)
    posts = [
        complete([(f"e{index}", events[index]) for index in found], 11.0 + found[-1]) for found in wanted
    ]
    return requests, posts


@pytest.mark.parametrize("seed", range(40))
def test_what_the_oracle_expects_holds_and_everything_else_does_not(tmp_path: Path, seed: int) -> None:
    requests, posts = script(seed)
    if len(posts) < 2:
        return
    report = check(tmp_path, *requests, *posts)
    assert (report.verdict, report.undecided) == ("holds", {}), report.text()
    assert report.counts.sequences == report.counts.sequences_due == len(posts)
    report = check(tmp_path, *requests, *posts[1:])
    assert (report.verdict, report.faults) == ("violated", {"missing": 1})


def test_histories_complete_sequences() -> None:
    assert sum(len(script(seed)[1]) for seed in range(40)) > 200


A, B = {"s": "a"}, {"s": "b"}
EVENTS = [
    publish("a1", 10, 11, **A),
    publish("a2", 12, 13, **A),
    publish("b1", 14, 15, **B),
    publish("b2", 16, 17, **B),
]


@pytest.mark.parametrize(
    ("posts", "faults"),
    [
        ([complete([("a1", A), ("b1", B)], 20)], {}),
        ([complete([("a1", A), ("b1", B)], 20), complete([("a1", A), ("b1", B)], 21)], {}),  # repeated
        ([], {"missing": 1}),
        (
            [complete([("a1", A), ("b1", B)], 20), complete([("a1", A), ("b1", B)], 21, "again")],
            {"duplicate": 1},
        ),
        ([complete([("a2", A), ("b1", B)], 20)], {"unexpected": 1, "missing": 1}),
        ([complete([("a1", A), ("b1", B)], 20), complete([("a2", A), ("b2", B)], 21)], {"unexpected": 1}),
        (
            [complete([("a1", A), ("b1", B)], 20), complete([("a1", A), ("b2", B)], 21)],
            {"unexpected": 2},  # it completes nothing, and takes an event twice
        ),
        ([complete([("a1", {"s": "x"}), ("b1", B)], 20)], {"altered": 1}),
    ],
)
def test_violations_are_found(tmp_path: Path, posts: list[Step], faults: dict[str, int]) -> None:
    report = check(tmp_path, watch(1, 2, A_B), *EVENTS, *posts)
    assert report.faults == faults, report.text()


def test_an_unknown_order_decides_nothing_but_nonsense(tmp_path: Path) -> None:
    events = [publish("a1", 10, 20, **A), publish("b1", 12, 18, **B)]
    report = check(tmp_path, watch(1, 2, A_B), *events)
    assert (report.faults, report.counts.sequences_open) == ({}, 1)
    assert check(tmp_path, watch(1, 2, A_B), *events, complete([("a1", A), ("b1", B)], 30)).faults == {}
    wrong = complete([("b1", B), ("a1", A)], 30)
    assert check(tmp_path, watch(1, 2, A_B), *events, wrong).faults == {"unexpected": 1}


def test_an_event_beside_the_subscribe_may_have_been_taken_or_not(tmp_path: Path) -> None:
    events = [publish("a1", 1, 3, **A), publish("a2", 10, 11, **A), publish("b1", 12, 13, **B)]
    for first in ("a1", "a2"):
        report = check(tmp_path, watch(1, 2, A_B), *events, complete([(first, A), ("b1", B)], 20))
        assert report.faults == {}, first
    assert check(tmp_path, watch(1, 2, A_B), *events).faults == {}


def test_within_is_judged_by_the_times_of_requests(tmp_path: Path) -> None:
    events = [publish("a1", 10, 11, **A), publish("b1", 40, 41, **B)]
    assert check(tmp_path, watch(1, 2, A_B, within="PT60S"), *events).faults == {"missing": 1}
    late = complete([("a1", A), ("b1", B)], 50)
    assert check(tmp_path, watch(1, 2, A_B, within="PT20S"), *events, late).faults == {"unexpected": 1}
