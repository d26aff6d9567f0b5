"""Sequences: the monitor against a brute-force oracle, and the form of requests."""

from __future__ import annotations

import random
from typing import Any

import pytest

from edn.errors import EdnError
from edn.formats import duration
from edn.model.schema import Schema
from edn.model.sequence import Candidate, HalfMatch, Sequence, advance, decode, encode
from edn.model.sequence.form import TopicRef, Written, parse, write
from tests.oracle.sequences import Happened, completions

SCHEMAS: dict[str, dict[str, str]] = {
    "logins": {"kind": "string", "level": "integer", "user": "integer"},
    "files": {"kind": "string", "size": "number", "user": "integer"},
}
KINDS = "abcd"


def _filter(random: random.Random, topic: str) -> dict[str, Any] | None:
    draw = random.random()
    if draw < 0.1:
        return None
    if draw < 0.75:
        return {"kind": random.choice(KINDS)}
    number = "level" if topic == "logins" else "size"
    return {number: {random.choice(["gt", "lte", "eq"]): random.randint(0, 3)}}


def _part(random: random.Random) -> dict[str, Any]:
    topic = random.choice(list(SCHEMAS))
    return {"topic": topic, "filter": _filter(random, topic)}


def random_sequence(random: random.Random) -> dict[str, Any]:
    steps = []
    for place in range(random.choice([2, 2, 2, 3, 3, 4])):
        step = _part(random)
        if random.random() < 0.3:
            step["times"] = random.randint(1, 3)
        if random.random() < 0.3 and (place or step.get("times", 1) > 1):
            step["unless"] = _part(random)
        steps.append(step)
    written: dict[str, Any] = {"sequence": steps}
    if random.random() < 0.5:
        written["by"] = ["user"]
    if random.random() < 0.5:
        written["within"] = random.randint(1, 30)
    return written


def random_history(random: random.Random, *, keys: int, chosen: float) -> list[Happened]:
    """Events whose times rise, except those that publishers choose."""
    time, events = 0, []
    for _ in range(random.randint(5, 60)):
        time += random.choice([0, 0, 1, 2, 5])
        topic = random.choice(list(SCHEMAS))
        values: dict[str, Any] = {"kind": random.choice(KINDS)}
        if random.random() < 0.9:
            values["level" if topic == "logins" else "size"] = random.randint(0, 3)
        if random.random() < 0.9:
            values["user"] = random.randrange(keys)
        if random.random() < chosen:
            events.append(Happened(topic, values, max(0, time + random.randint(-8, 8))))
        else:
            events.append(Happened(topic, values, time, random.choice(["log-1", "log-2"])))
    return events


def run(written: dict[str, Any], events: list[Happened]) -> list[list[int]]:
    """Feeds the events to the product's monitors."""
    refs = {name: TopicRef(uid, Schema.parse(types)) for uid, (name, types) in enumerate(SCHEMAS.items(), 1)}
    given = Written(written["sequence"], by=written.get("by"))
    sequence = parse(given, refs.__getitem__)
    sequence = decode(encode(Sequence(sequence.steps, sequence.by, written.get("within"))))
    bound = sequence.bind({ref.uid: ref.schema for ref in refs.values()})
    halves: dict[Any, HalfMatch[int]] = {}
    found = []
    for index, event in enumerate(events):
        roles = sum(
            1 << part.role
            for part in bound.parts
            if part.topic == refs[event.topic].uid and part.bound.matches(event.values)
        )
        if not roles or any(name not in event.values for name in sequence.by):
            continue
        key = tuple(event.values[name] for name in sequence.by)
        candidate = Candidate(event.time, event.made_by or "", index)
        half, complete = advance(sequence.plan, halves.get(key, ()), roles, candidate)
        halves[key] = half
        _check(sequence, half)
        if complete:
            found.append([one.payload for one in complete])
    return found


def _check(sequence: Sequence, half: HalfMatch[int]) -> None:
    assert len(half) < len(sequence.plan.slots)
    stamps = [one.stamp for one in half]
    assert stamps == sorted(stamps)
    assert not half or sequence.within is None or stamps[-1] - stamps[0] <= sequence.within


@pytest.mark.parametrize("seed", range(10))
def test_a_monitor_finds_what_the_oracle_finds(seed: int) -> None:
    drawn = random.Random(seed)
    complete = 0
    for _ in range(200):
        written = random_sequence(drawn)
        events = random_history(drawn, keys=drawn.choice([1, 3, 50]), chosen=drawn.choice([0, 0, 0.3, 1]))
        wanted = completions(written, SCHEMAS, events, written.get("within"))
        assert run(written, events) == wanted, (written, events)
        complete += len(wanted)
    assert complete > 50


def _trace(*order: tuple[str, int]) -> list[Happened]:
    return [Happened("logins", {"kind": kind}, time) for kind, time in order]


#: the trace of the SIENA paper (§3.3), in the order of matching
SIENA = _trace(("b", 4), ("a", 3), ("a", 1), ("b", 2), ("a", 5), ("b", 6), ("a", 7), ("b", 8))
A_B = {
    "sequence": [{"topic": "logins", "filter": {"kind": "a"}}, {"topic": "logins", "filter": {"kind": "b"}}]
}


def test_the_trace_of_the_paper_has_two_matches() -> None:
    assert [[SIENA[index].time for index in found] for found in run(A_B, SIENA)] == [[3, 6], [7, 8]]


def test_the_trace_in_order_of_time_has_four_matches() -> None:
    ordered = sorted(SIENA, key=lambda event: event.time)
    assert [[ordered[index].time for index in found] for found in run(A_B, ordered)] == [
        [1, 2],
        [3, 4],
        [5, 6],
        [7, 8],
    ]


def test_equal_times_are_in_order_only_if_one_log_made_both() -> None:
    def four(*made: str | None) -> list[Happened]:
        return [Happened("logins", {"kind": kind}, 9, by) for kind, by in zip("abab", made, strict=True)]

    assert run(A_B, four("x", "x", "x", "x")) == [[0, 1], [2, 3]]
    assert run(A_B, four(None, None, None, None)) == []
    assert run(A_B, four("x", "y", "x", "x")) == [[0, 3]]


def test_partial_delegation_would_change_what_matches() -> None:
    def steps(kinds: str) -> dict[str, Any]:
        return {"sequence": [{"topic": "logins", "filter": {"kind": kind}} for kind in kinds]}

    events = _trace(*((kind, time) for time, kind in enumerate("abacbc")))
    assert len(run(steps("abc"), events)) == 1


def _refused(**members: Any) -> tuple[str | None, str]:
    members.setdefault("steps", A_B["sequence"])
    refs = {name: TopicRef(uid, Schema.parse(types)) for uid, (name, types) in enumerate(SCHEMAS.items(), 1)}
    refs["odd"] = TopicRef(3, Schema.parse({"user": "string", "tags": ["string"]}))
    written = Written(**members)
    with pytest.raises(EdnError) as error:
        parse(written, refs.__getitem__)
    assert error.value.status == 422
    return error.value.pointer, error.value.detail


STEP = {"topic": "logins", "filter": {"kind": "a"}}


@pytest.mark.parametrize(
    ("members", "pointer", "part"),
    [
        ({"steps": [STEP]}, "/sequence", "for one step use filter"),
        ({"steps": []}, "/sequence", "2 to 16 steps, got 0"),
        ({"steps": [STEP] * 17}, "/sequence", "2 to 16 steps, got 17"),
        ({"steps": {}}, "/sequence", "a list of steps"),
        ({"steps": [STEP, 3]}, "/sequence/1", "a step must be an object"),
        ({"steps": [STEP, {**STEP, "filters": 1}]}, "/sequence/1/filters", "one of topic, filter, times"),
        ({"steps": [STEP, {"filter": {"kind": "a"}}]}, "/sequence/1", "must have a topic"),
        ({"steps": [STEP, {"topic": "logins.**"}]}, "/sequence/1/topic", "the subtree"),
        ({"steps": [STEP, {"topic": 5}]}, "/sequence/1/topic", "must be a string"),
        ({"steps": [STEP, {**STEP, "filter": {"size": 1}}]}, "/sequence/1/filter/size", "size"),
        (
            {"steps": [STEP, {**STEP, "filter": "level > 5 and level < 3"}]},
            "/sequence/1/filter",
            "exclude each other",
        ),
        (
            {"steps": [STEP, {**STEP, "unless": {"filter": "level > 5 and level < 3"}}]},
            "/sequence/1/unless/filter",
            "exclude each other",
        ),
        ({"steps": [STEP, {**STEP, "times": 0}]}, "/sequence/1/times", "1 to 100, got 0"),
        ({"steps": [STEP, {**STEP, "times": True}]}, "/sequence/1/times", "1 to 100, got true"),
        ({"steps": [{**STEP, "times": 60}] * 2}, "/sequence", "together must be at most 100, got 120"),
        ({"steps": [{**STEP, "unless": {}}, STEP]}, "/sequence/0/unless", "nothing precedes"),
        ({"steps": [STEP, {**STEP, "unless": "kind == 'b'"}]}, "/sequence/1/unless", "must be an object"),
        ({"by": ["size"]}, "/by/0", 'none of "logins"'),
        ({"by": []}, "/by", "1 to 8"),
        ({"by": ["user", "user"]}, "/by", "different"),
        ({"by": "user"}, "/by", "a list"),
        ({"by": ["user"], "steps": [STEP, {"topic": "odd"}]}, "/by/0", "must have one type"),
        ({"by": ["tags"], "steps": [{"topic": "odd"}, {"topic": "odd"}]}, "/by/0", "an array"),
        ({"within": "PT0S"}, "/within", "above 0"),
        ({"within": "-PT5M"}, "/within", "a duration such as"),
        ({"within": 0}, "/within", "a duration such as"),
        ({"settle": "PT1H0.000001S"}, "/settle", "at most one hour"),
        ({"settle": "PT0S"}, "/settle", "above 0"),
    ],
)
def test_a_wrong_sequence_is_refused_with_its_place(members: dict[str, Any], pointer: str, part: str) -> None:
    place, detail = _refused(**members)
    assert place == pointer
    assert part in detail


def test_a_sequence_is_shown_as_it_was_written() -> None:
    steps = [
        {"topic": "logins", "filter": {"kind": "a"}, "times": 3},
        {"topic": "files", "filter": None, "unless": {"topic": "logins", "filter": {"kind": "b"}}},
    ]
    refs = {name: TopicRef(uid, Schema.parse(types)) for uid, (name, types) in enumerate(SCHEMAS.items(), 1)}
    sequence = parse(Written(steps, by=["user"], within="5m", settle="PT2.5S"), refs.__getitem__)
    shown = write(decode(encode(sequence)), {ref.uid: name for name, ref in refs.items()}.__getitem__)
    assert shown == {"sequence": steps, "by": ["user"], "within": "PT5M", "settle": "PT2.5S"}


def test_a_sequence_covers_another_step_by_step() -> None:
    refs = {name: TopicRef(uid, Schema.parse(types)) for uid, (name, types) in enumerate(SCHEMAS.items(), 1)}

    def bound(*filters: str, topics: str = "logins logins") -> Any:
        steps = [
            {"topic": topic, "filter": filter} for topic, filter in zip(topics.split(), filters, strict=True)
        ]
        sequence = parse(Written(steps), refs.__getitem__)
        return sequence.bind({ref.uid: ref.schema for ref in refs.values()})

    wide, narrow = bound("level > 1", "kind prefix 'a'"), bound("level > 2", "kind == 'ab'")
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert not bound("level > 1", "kind == 'x'").covers(narrow)
    other = bound("kind == 'a'", "kind == 'a'", topics="logins files")
    assert not bound("kind == 'a'", "kind == 'a'").covers(other)


@pytest.mark.parametrize("text", ["PT1H30M", "P2D", "PT0.5S", "P1DT2H3M4.000005S", "PT10S", "PT0S"])
def test_a_duration_is_written_as_it_is_read(text: str) -> None:
    length = duration.microseconds(text)
    assert length is not None
    assert duration.text(length) == text
