"""`edn delivery` and `edn dead-letters` on a network that is a stub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_cli_commands import SUBSCRIPTION, Stub, edn, stub

__all__ = ["stub"]

SECRET = "whsec_" + "A" * 44
DELIVERY: dict[str, Any] = {
    "state": "failing", "failures": 3, "failing_since": "2030-01-01T00:00:00Z", "reason": "it answered 500",
    "warned": "2030-01-02T00:00:00Z", "evaluated": 9, "matched": 4, "delivered": 1, "failed": 2,
}  # fmt: skip
ATTEMPT = {
    "time": "2030-01-01T00:00:00Z", "webhook_id": "msg_1", "status": 500, "reason": "it answered 500",
    "seconds": 0.25, "answer": "oh no", "notifications": 3, "outcome": "again",
}  # fmt: skip
LETTER = {
    "id": "s1.4", "webhook_id": "msg_4", "url": "http://h/", "died": "2030-01-01T00:00:00Z",
    "created": "2029-12-31T00:00:00Z", "reason": "it answered 422", "status": 422,
    "subscriptions": ["sub1", "sub2"],
}  # fmt: skip
QUEUED = {"letters": 2, "notifications": 5, "more": False}
SUB = "/v1/subscriptions/sub1"

# command, answers → what must be in its output
COMMANDS: list[tuple[list[str], dict[tuple[str, str], Any], list[str]]] = [
    (["delivery", "show", "sub1"], {("GET", SUB): {**SUBSCRIPTION, "delivery": DELIVERY}},
     ["failing since 2030-01-01T00:00:00Z: it answered 500", "will be disabled", "9 evaluated, 4 matched"]),
    (["delivery", "show", "sub1"],
     {("GET", SUB): {**SUBSCRIPTION, "state": "paused", "delivery": {**DELIVERY, "buffered_bytes": 1234}}},
     ["paused; 1,234 bytes"]),
    (["delivery", "show", "sub1"],
     {("GET", SUB): {**SUBSCRIPTION, "delivery": {**DELIVERY, "state": "disabled", "disabled": "gone",
                                                  "disabled_since": "2030-01-01T00:00:00Z"}}},
     ["disabled since 2030-01-01T00:00:00Z; enable it with `edn delivery enable sub1`"]),
    (["delivery", "attempts", "sub1"], {("GET", f"{SUB}/attempts"): {"attempts": [ATTEMPT]}},
     ["again", "500", "it answered 500", "oh no"]),
    (["delivery", "attempts", "sub1"], {("GET", f"{SUB}/attempts"): {"attempts": []}}, []),
    (["delivery", "example", "sub1"],
     {("POST", f"{SUB}/example"): {**ATTEMPT, "status": 204, "reason": None}},
     ["accepted: 204 after 0.250 s", "oh no"]),
    (["delivery", "enable", "sub1"], {("POST", f"{SUB}/enable"): {"state": "healthy"}}, ["healthy"]),
    (["dead-letters", "list"], {("GET", "/v1/dead-letters"): {"dead_letters": [LETTER], "next": None}},
     ["s1.4", "422", "sub1 and 1 more"]),
    (["dead-letters", "show", "s1.4"], {("GET", "/v1/dead-letters/s1.4"): {**LETTER, "body": {"a": 1}}},
     ['"body":{"a":1}']),
    (["dead-letters", "resend", "s1.4"], {("POST", "/v1/dead-letters/s1.4/resend"): QUEUED},
     ["5 notifications"]),
    (["dead-letters", "recover", "sub1", "--since", "2030-01-01T00:00:00Z"],
     {("POST", f"{SUB}/recover"): QUEUED}, ["2 dead letters requeued, with 5 notifications"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "answers", "shown"), COMMANDS, ids=lambda value: str(value)[:30])
def test_a_command_shows_what_the_network_answers(
    stub: Stub, arguments: list[str], answers: dict[tuple[str, str], Any], shown: list[str]
) -> None:
    stub.answers.update({key: (200, answer) for key, answer in answers.items()})
    done = edn(stub, *arguments)
    assert done.exit_code == 0, done.output
    assert all(part in done.stdout for part in shown), done.stdout
    if arguments[:2] != ["dead-letters", "show"]:
        for line in edn(stub, *arguments, "--json").stdout.splitlines():
            json.loads(line)


def test_a_server_that_does_not_answer_is_exit_code_1(stub: Stub) -> None:
    stub.answers["GET", SUB] = (200, {**SUBSCRIPTION, "delivery": None})
    done = edn(stub, "delivery", "show", "sub1")
    assert (done.exit_code, "does not answer" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("attempt", "shown"),
    [
        (ATTEMPT, "failed: 500 after 0.250 s  oh no"),
        ({**ATTEMPT, "status": None, "reason": "no connection", "answer": ""}, "failed: no connection after"),
        ({**ATTEMPT, "status": 302}, "failed: 302"),
    ],
)
def test_an_example_that_the_sink_does_not_accept_is_exit_code_1(
    stub: Stub, attempt: dict[str, Any], shown: str
) -> None:
    stub.answers["POST", f"{SUB}/example"] = (200, attempt)
    done = edn(stub, "delivery", "example", "sub1")
    assert done.exit_code == 1
    assert shown in done.stdout
    assert edn(stub, "delivery", "example", "sub1", "--json").exit_code == 1


def test_letters_after_a_refused_one_are_requeued_too(stub: Stub) -> None:
    for id in ("s1.1", "s1.3"):
        stub.answers["POST", f"/v1/dead-letters/{id}/resend"] = (200, {**QUEUED, "notifications": 1})
    done = edn(stub, "dead-letters", "resend", "s1.1", "s1.2", "s1.3")
    assert done.exit_code == 1
    assert done.stdout == "s1.1: 1 notification requeued\ns1.3: 1 notification requeued\n"
    assert "s1.2: Not found" in done.stderr


def test_what_is_refused_is_said_and_is_exit_code_1(stub: Stub) -> None:
    assert edn(stub, "delivery", "enable", "nobody").exit_code == 1


def test_a_secret_comes_from_a_file_never_from_the_command_line(stub: Stub, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    rotated = {"secret": None, "previous_until": "2030-01-01T00:00:00Z", "subscriptions": 1}
    stub.answers["POST", f"{SUB}/rotate-secret"] = (200, rotated)
    done = edn(stub, "delivery", "rotate-secret", "sub1", "--secret-file", str(file), "--grace", "PT1H")
    assert stub.requests[-1][2] == {"secret": SECRET, "grace": "PT1H"}
    assert SECRET not in done.output
    made = edn(stub, "delivery", "rotate-secret", "sub1")
    assert stub.requests[-1][2]["secret"] in made.stdout
    assert edn(stub, "delivery", "rotate-secret", "sub1", "--secret-file", "/nonexistent").exit_code == 2


def test_a_secret_that_was_made_is_shown_beside_the_id(stub: Stub) -> None:
    made = {**SUBSCRIPTION, "sink": {"url": "http://h/", "secret": SECRET}}
    stub.answers["POST", "/v1/subscriptions"] = (201, made)
    done = edn(stub, "subscribe", "stocks", "--to", "http://h/")
    assert done.stdout.strip() == "sub1"
    assert SECRET in done.stderr
