"""Recordings as they are read: those that decide nothing, or cannot be read; options; several files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edn.tools.checker import RecordingError, check_recording
from tests.unit.checker.script import (
    GOT,
    LIFE,
    E,
    Step,
    batch,
    check,
    got,
    lines,
    publish,
    subscribe,
    unsubscribe,
    write,
)

# -- what cannot be decided or read ---------------------------------------------------------------------


def test_an_empty_file_decides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.touch()
    assert check_recording(path).verdict == "unknown"


def test_what_is_left_open_is_counted(tmp_path: Path) -> None:
    elsewhere = subscribe("b", 10, 20, address="http://there/")
    report = check(
        tmp_path, *LIFE, elsewhere, batch("e f", 30, 40), got("e"), got("f"), publish("g", 25, 1500)
    )
    assert sorted(report.undecided.items()) == [
        ("due, but nobody recorded what their address accepted", 2),
        ("due, but the network was never said to be at rest after they were published", 1),
    ]


def test_a_recording_in_which_nothing_happens_decides_nothing(tmp_path: Path) -> None:
    report = check(tmp_path, *LIFE)
    assert report.verdict == "unknown"
    assert any("shows nothing" in reason for reason in report.undecided)


def test_without_rest_nothing_is_missing_yet(tmp_path: Path) -> None:
    assert check(tmp_path, *LIFE, E, quiet=None).verdict == "unknown"
    assert check(tmp_path, *LIFE, E, GOT, quiet=None).verdict == "holds"
    assert check(tmp_path, *LIFE, E, publish("f", 30, 2000), GOT).verdict == "holds"


def test_a_cut_off_recording_can_only_show_what_is_wrong(tmp_path: Path) -> None:
    assert check(tmp_path, *LIFE, E, GOT, end=False).verdict == "unknown"
    assert check(tmp_path, *LIFE, E, GOT, got("f"), end=False).verdict == "violated"


@pytest.mark.parametrize("lost", range(1, 300, 7))
def test_a_recording_cut_off_anywhere_never_accuses(tmp_path: Path, lost: int) -> None:
    path = write(tmp_path / "run.jsonl", *LIFE, E, GOT)
    path.write_bytes(path.read_bytes()[:-lost])
    assert check_recording(path).verdict == "unknown"


def asked(kind: str, **fields: Any) -> str:
    return json.dumps({"record": "invoke", "op": "w", "kind": kind, "time": 1, **fields})


WRONG = {
    "no JSON": "nonsense",
    "an unknown record": '{"record": "opinion", "time": 1}',
    "an answer to nothing": '{"record": "ok", "op": 99999, "time": 1}',
    "a second header": '{"record": "header", "version": 1, "time": 0, "wall": 0}',
    "another type": '{"record": "topic", "topic": "t", "attributes": {"n": "string"}, "time": 1}',
    "no such type": '{"record": "topic", "topic": "u", "attributes": {"n": "colour"}, "time": 1}',
    "no such topic": asked("subscribe", subscription="q", topic="v"),
    "a value of another type": asked("publish", topic="t", events=[{"$id": "1", "n": "q"}]),
    "no such element type": '{"record": "topic", "topic": "u", "attributes": {"n": ["colour"]}, "time": 1}',
    "no such operator": asked("subscribe", subscription="q", topic="t", filter={"n": {"like": 1}}),
    "an empty filter": asked("subscribe", subscription="q", topic="t", filter={}),
    "no such subscription to change": asked("change", subscription="q", filter={"n": 1}),
    "nothing to renew": asked("renew", expires="PT1S"),
    "an expiry that is none": asked("subscribe", subscription="q", topic="t", expires="soon"),
    "an expiry beyond all time": asked("subscribe", subscription="q", topic="t", expires="P99999999999D"),
    "a number beyond a double": asked("publish", topic="t", events=[{"$id": "1", "x": 10**400}]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_said_with_its_line(tmp_path: Path, case: str) -> None:
    written = lines(*LIFE, E, GOT)
    written.insert(3, WRONG[case])
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(written) + "\n")
    with pytest.raises(RecordingError) as raised:
        check_recording(path)
    assert "line 4" in raised.value.detail or "'colour'" in raised.value.detail


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="version 2"):
        check(tmp_path, *LIFE, header={"version": 2})


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot read"):
        check_recording(tmp_path / "nothing")


# -- options and several files --------------------------------------------------------------------------


def test_lateness_has_a_bound_if_asked(tmp_path: Path) -> None:
    steps = [*LIFE, E, GOT]  # answered at 40, notified at 100
    assert check(tmp_path, *steps, options={"within": 61}).verdict == "holds"
    late = check(tmp_path, *steps, options={"within": 59})
    assert (late.verdict, late.faults) == ("violated", {"late": 1})


def test_order_counts_only_if_asked(tmp_path: Path) -> None:
    steps = [*LIFE, E, publish("f", 50, 60), got("f", 70), got("e", 75, n=15)]
    plain = check(tmp_path, *steps)
    assert (plain.verdict, plain.faults) == ("holds", {"out_of_order": 1})
    asked = check(tmp_path, *steps, options={"ordered": True})
    assert (asked.verdict, asked.violations[0].event) == ("violated", "e")


@pytest.mark.parametrize(
    "second",
    [
        [publish("f", 35, 60)],
        [publish("f", 50, 60, via="other")],
        [
            publish("f", 50, 60, via="d1"),
            publish("f", 61, 62, via="d2"),
            publish("e", 48, 49, via="d2", n=15),
        ],
    ],
    ids=["published at once", "at different dispatchers", "each at several"],
)
def test_events_without_an_order_cannot_be_out_of_it(tmp_path: Path, second: list[Step]) -> None:
    steps = [*LIFE, E, *second, got("f", 70), got("e", 75, n=15)]
    assert check(tmp_path, *steps, options={"ordered": True}).verdict == "holds"


def test_unanswered_operations_settle_where_that_is_declared(tmp_path: Path) -> None:
    steps = [subscribe("a", 10, 20), unsubscribe("a", 22, 24, answer="unknown"), E]
    assert (
        check(tmp_path, subscribe("a", 1, 2, answer="unknown"), *LIFE, publish("e", 92, 93), got()).verdict
        == "holds"
    )
    settled = check(
        tmp_path,
        subscribe("a", 1, 2, answer="unknown"),
        *LIFE,
        publish("e", 92, 93),
        got(),
        header={"settles_after": 5},
    )
    assert settled.faults == {"unexpected": 1}
    assert (
        check(tmp_path, *steps, publish("f", 21, 21.5), got("f"), header={"settles_after": 5}).verdict
        == "holds"
    )


def test_a_recording_may_be_in_several_files(tmp_path: Path) -> None:
    first = write(tmp_path / "clients.jsonl", *LIFE, E, publish("f", 50, 60))
    second = tmp_path / "receiver.jsonl"
    header, *_, end = lines()
    notification = [json.dumps(GOT.records[0][1] | {"time": 100 * 10**9})]
    second.write_text("\n".join([header, *notification, end]) + "\n")
    report = check_recording(first, second)
    assert (report.verdict, report.faults) == ("violated", {"missing": 1})
    assert "clients.jsonl line 4" in report.text()


def test_only_the_first_violations_are_explained_and_all_are_counted(tmp_path: Path) -> None:
    events = [publish(f"e{number}", 30 + number, 30.5 + number) for number in range(20)]
    report = check(tmp_path, *LIFE, *events, options={"explained": 3})
    assert (report.faults, len(report.violations)) == ({"missing": 20}, 3)
    assert "17 more" in report.text()


def test_counts_tell_what_was_judged(tmp_path: Path) -> None:
    counts = check(
        tmp_path, *LIFE, E, GOT, got(time=110, n=15), publish("f", 70, 85), got("f"), publish("g", 1, 2)
    ).counts
    assert (counts.operations, counts.subscriptions, counts.events, counts.posts) == (5, 1, 3, 3)
    assert (counts.due, counts.notified, counts.optional, counts.repeats) == (1, 2, 1, 1)
