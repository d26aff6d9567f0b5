"""Tiny recordings, one for each way in which operations and events can meet.

Most of this module is their table, which belongs together: that is why it is long.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edn.tools.checker import Report
from tests.unit.checker.script import (
    ADDRESS,
    GOT,
    LIFE,
    TOPIC,
    E,
    Step,
    batch,
    change,
    check,
    got,
    notified,
    operation,
    posted,
    publish,
    said,
    subscribe,
    unsubscribe,
)

HIGH = {"n": {"gte": 10}}
LOW = {"n": {"lt": 10}}


def unknown(kind: str, begin: float, end: float, answer_status: int = 404, **fields: Any) -> Step:
    """An operation on "a" that is refused because there is no such subscription."""
    return operation(kind, begin, end, "fail", subscription="a", answer_status=answer_status, **fields)


def decisive(report: Report) -> dict[str, int]:
    return {fault: count for fault, count in report.faults.items() if fault not in report.informative}


#: when the event was published, relative to LIFE → verdict if it is notified, verdict if it is not
MEETINGS = {
    "inside": (30, 40, "holds", "violated"),
    "just after the answer of subscribe": (20.1, 30, "holds", "violated"),
    "until just before the request of unsubscribe": (70, 79.9, "holds", "violated"),
    "begun at the tick of the answer of subscribe": (20, 30, "holds", "holds"),
    "answered at the tick of the request of unsubscribe": (70, 80, "holds", "holds"),
    "over the end of subscribe": (15, 30, "holds", "holds"),
    "inside subscribe": (12, 18, "holds", "holds"),
    "answered at the tick of the request of subscribe": (5, 10, "holds", "holds"),
    "just before the request of subscribe": (5, 9.9, "violated", "holds"),
    "over the beginning of unsubscribe": (70, 85, "holds", "holds"),
    "inside unsubscribe": (82, 88, "holds", "holds"),
    "begun at the tick of the answer of unsubscribe": (90, 95, "holds", "holds"),
    "just after the answer of unsubscribe": (90.1, 95, "violated", "holds"),
    "over everything": (5, 95, "holds", "holds"),
}


@pytest.mark.parametrize("case", MEETINGS)
@pytest.mark.parametrize("arrives", [True, False])
def test_an_event_must_may_or_must_not_be_notified(tmp_path: Path, case: str, arrives: bool) -> None:
    begin, end, with_it, without_it = MEETINGS[case]
    # A second event, surely inside, keeps the recording from showing nothing.
    steps = [*LIFE, publish("z", 50, 51), got("z"), publish("e", begin, end)]
    report = check(tmp_path, *steps, *([got()] if arrives else []))
    assert report.verdict == (with_it if arrives else without_it)
    if report.verdict == "violated":
        assert decisive(report) == {"unexpected" if arrives else "missing": 1}
        assert (report.violations[0].subscription, report.violations[0].event) == ("a", "e")


Case = tuple[list[Step], str, dict[str, int]]

CASES: dict[str, Case] = {
    # -- filters
    "a notification that the filter does not match": (
        [subscribe("a", 10, 20, LOW), E, GOT],
        "violated",
        {"unexpected": 1},
    ),
    "no notification where the filter does not match": (
        [subscribe("a", 10, 20, LOW), E, publish("f", 50, 60, n=1), got("f", n=1)],
        "holds",
        {},
    ),
    "a filter as text that the answer translates": (
        [subscribe("a", 10, 20, "n >= 10", answer_filter=HIGH), E],
        "violated",
        {"missing": 1},
    ),
    "a filter as text only decides nothing": ([subscribe("a", 10, 20, "n >= 10"), E], "unknown", {}),
    # -- unknown and refused subscriptions
    "a subscribe without an answer may have worked": ([subscribe("a", 10, None), E, GOT], "holds", {}),
    "a subscribe without an answer may have failed": (
        [subscribe("a", 10, None), E, subscribe("b", 10, 20), notified("b", "e", 50, n=15)],
        "holds",
        {},
    ),
    "a subscribe without an answer that got one event gets the next": (
        [subscribe("a", 10, None), E, GOT, publish("f", 50, 60)],
        "violated",
        {"missing": 1},
    ),
    "what another dispatcher's event proves says nothing of this one's": (
        [subscribe("a", 10, None), E, GOT, publish("f", 50, 60, via="other")],
        "holds",
        {},
    ),
    "without the dispatcher's name nothing is concluded": (
        [subscribe("a", 10, None), publish("e", 30, 40, via=None, n=15), GOT, publish("f", 50, 60, via=None)],
        "holds",
        {},
    ),
    "during an unanswered subscribe nothing goes back": (
        # e came, so it was active when f was published, which did not come
        [subscribe("a", 10, 70), E, GOT, publish("f", 50, 60)],
        "violated",
        {"missing": 1},
    ),
    "a refused subscription": (
        [subscribe("a", 10, 20, answer="fail"), E, GOT],
        "violated",
        {"unexpected": 1},
    ),
    "a refused one, asked for again": (
        [subscribe("a", 1, 2, answer="fail"), subscribe("a", 10, 20), E, GOT],
        "holds",
        {},
    ),
    "subscribed twice is once": (
        [subscribe("a", 10, 20), subscribe("a", 21, 22), E],
        "violated",
        {"missing": 1},
    ),
    "subscribed again after the end": (
        [*LIFE, publish("e", 92, 93), subscribe("a", 95, 96), publish("f", 97, 98), got("f")],
        "holds",
        {},
    ),
    "between two lives": (
        [*LIFE, publish("e", 92, 93), subscribe("a", 95, 96), got("e")],
        "violated",
        {"unexpected": 1},
    ),
    "a subscription that nobody asked for": ([E, GOT], "violated", {"unexpected": 1}),
    "a subscription that may be a nameless one": ([subscribe(None, 10, None), E, GOT], "unknown", {}),
    "a nameless one elsewhere explains nothing": (
        [subscribe(None, 10, None, address="http://there/"), E, GOT],
        "violated",
        {"unexpected": 1},
    ),
    "an id that came with the answer": (
        [subscribe(None, 10, 20, answer_subscription="a"), E],
        "violated",
        {"missing": 1},
    ),
    "another topic": (
        [said("topic", 0, topic="u", attributes={}), subscribe("a", 10, 20, topic="u"), E, GOT],
        "violated",
        {"unexpected": 1},
    ),
    # -- unsubscribe
    "an unanswered unsubscribe may have worked": (
        [subscribe("a", 10, 20), unsubscribe("a", 25, None), E, publish("f", 21, 22), got("f")],
        "holds",
        {},
    ),
    "an unanswered unsubscribe may have failed": (
        [subscribe("a", 10, 20), unsubscribe("a", 25, None), E, GOT],
        "holds",
        {},
    ),
    "what comes after an unanswered unsubscribe shows that it had not worked": (
        [subscribe("a", 10, 20), unsubscribe("a", 25, None), E, publish("f", 50, 60), got("f")],
        "violated",
        {"missing": 1},
    ),
    "a refused unsubscribe ends nothing": (
        [subscribe("a", 10, 20), unsubscribe("a", 25, 26, answer="fail"), E],
        "violated",
        {"missing": 1},
    ),
    # -- publishing
    "an unanswered publish may be notified": ([*LIFE, publish("e", 30, None), got()], "holds", {}),
    "an unanswered publish need not be": (
        [*LIFE, publish("e", 30, None), publish("f", 40, 50), got("f")],
        "holds",
        {},
    ),
    "an unanswered publish that one was told of, all are": (
        [*LIFE, subscribe("b", 10, 20), publish("e", 30, None), notified("b", "e", 60)],
        "violated",
        {"missing": 1},
    ),
    "a batch is logged as one": (
        [*LIFE, batch("e f", 30, None), got("e", 60)],
        "violated",
        {"missing": 1},
    ),
    "what was notified had been logged: a later subscription does not get it": (
        [
            subscribe("a", 10, 20),
            publish("e", 30, 90),
            got("e", 40),
            subscribe("b", 50, 60),
            notified("b", "e", 95),
        ],
        "violated",
        {"unexpected": 1},
    ),
    "a refused publish is not notified": (
        [*LIFE, publish("e", 30, 40, "fail"), got()],
        "violated",
        {"unexpected": 1},
    ),
    "a refused publish, repeated and accepted": (
        [*LIFE, publish("e", 22, 23, "fail"), publish("e", 30, 40)],
        "violated",
        {"missing": 1},
    ),
    "one event published three times is one event": (
        [*LIFE, publish("e", 30, None), publish("e", 35, 36), publish("e", 60, 61), got()],
        "holds",
        {},
    ),
    "a retried publish counts from its first attempt": (
        [subscribe("a", 10, 20), publish("e", 5, None), publish("e", 30, 40), publish("z", 30, 40), got("z")],
        "holds",
        {},
    ),
    "an event that was never published": ([*LIFE, got()], "violated", {"unexpected": 1}),
    "an event that may be a nameless one": ([*LIFE, publish(None, 30, None), got("x1")], "unknown", {}),
    "ids that came with the answer": (
        [*LIFE, operation("publish", 30, 40, topic=TOPIC, events=[{}, {}], answer_ids=["e", "f"]), got("e")],
        "violated",
        {"missing": 1},
    ),
    "ids from an idempotency key": (
        [*LIFE, operation("publish", 30, 40, topic=TOPIC, events=[{}, {}], key="k"), got("k/0"), got("k/1")],
        "holds",
        {},
    ),
    "one id, two contents, both accepted": (
        [*LIFE, publish("e", 30, 40, n=1), publish("e", 50, 60, n=2), got(n=1)],
        "violated",
        {"altered": 1},
    ),
    "one id, two contents, one refused": (
        [*LIFE, publish("e", 30, 40, n=1), publish("e", 50, 60, "fail", n=2), got(n=1)],
        "holds",
        {},
    ),
    "one id, two contents, the accepted one counts": (
        [subscribe("a", 10, 20, HIGH), publish("e", 30, None, n=1), publish("e", 50, 60, n=15)],
        "violated",
        {"missing": 1},
    ),
    "one id, two contents, what came after the acceptance does not count": (
        [subscribe("a", 10, 20, HIGH), publish("e", 30, 40, n=15), publish("e", 50, None, n=1)],
        "violated",
        {"missing": 1},
    ),
    "one id, two contents, none accepted": (
        [subscribe("a", 10, 20, HIGH), publish("e", 30, None, n=1), publish("e", 50, None, n=15), got(n=15)],
        "holds",
        {},
    ),
    "one id, two contents, none accepted, so nobody knows what is due": (
        [
            subscribe("a", 10, 20, HIGH),
            subscribe("b", 10, 20),
            publish("e", 30, None, n=15),
            publish("e", 50, None, n=1),
            notified("b", "e", 100, n=1),
        ],
        "holds",
        {},
    ),
    "an unanswered publish that nobody was told of proves nothing": (
        # Had f been logged, its absence would say that the subscription had not begun when e was published.
        [subscribe("a", 10, 90), publish("f", 50, None), publish("e", 30, 40), got()],
        "holds",
        {},
    ),
    # -- change
    "the old filter before the change": (
        [subscribe("a", 10, 20, HIGH), E, change("a", 50, 60, LOW)],
        "violated",
        {"missing": 1},
    ),
    "the new filter after the change": (
        [subscribe("a", 10, 20, LOW), change("a", 22, 25, HIGH), E],
        "violated",
        {"missing": 1},
    ),
    "not the old filter after the change": (
        [subscribe("a", 10, 20, HIGH), change("a", 22, 25, LOW), E, GOT],
        "violated",
        {"unexpected": 1},
    ),
    "not the new filter before the change": (
        [subscribe("a", 10, 20, LOW), E, change("a", 50, 60, HIGH), GOT],
        "violated",
        {"unexpected": 1},
    ),
    "either filter during the change, notified": (
        [subscribe("a", 10, 20, LOW), change("a", 25, 50, HIGH), E, GOT],
        "holds",
        {},
    ),
    "either filter during the change, not notified": (
        [
            subscribe("a", 10, 20, LOW),
            change("a", 25, 50, HIGH),
            E,
            publish("f", 60, 61, n=10),
            got("f", n=10),
        ],
        "holds",
        {},
    ),
    "both filters match during the change": (
        [subscribe("a", 10, 20, HIGH), change("a", 25, 50, {"n": 15}), E],
        "violated",
        {"missing": 1},
    ),
    "once the new filter was seen the old one is over": (
        [
            subscribe("a", 10, 20, LOW),
            change("a", 25, 70, HIGH),
            E,
            GOT,
            publish("f", 50, 60, n=1),
            got("f", n=1),
        ],
        "violated",
        {"unexpected": 1},
    ),
    "two misses during a change that no single point excuses": (
        [
            subscribe("a", 10, 20, LOW),
            change("a", 25, 70, HIGH),
            publish("f", 30, 40, n=1),  # not told, so the change had come
            publish("g", 50, 60, n=15),  # not told, so it had not
        ],
        "violated",
        {"missing": 1},
    ),
    "a refused change changes nothing": (
        [subscribe("a", 10, 20, HIGH), change("a", 22, 25, LOW, answer="fail"), E],
        "violated",
        {"missing": 1},
    ),
    "an unanswered change": (
        [subscribe("a", 10, 20, LOW), change("a", 22, None, HIGH), E, GOT],
        "holds",
        {},
    ),
    # -- answers that say whether a subscription is there
    "refused as unknown before its expiry": (
        [subscribe("a", 10, 20, expires="PT20S"), unknown("renew", 25, 26), E, GOT],
        "violated",
        {"ended": 1},
    ),
    "refused as unknown when it may just have expired": (
        [subscribe("a", 10, 20, expires="PT31S"), unknown("renew", 40.4, 40.6), E, GOT],
        "holds",
        {},
    ),
    "refused as unknown though it was renewed in time": (
        [
            subscribe("a", 10, 20, expires="PT15S"),
            operation("renew", 21, 22, subscription="a", expires="PT1H"),
            unknown("pause", 45, 46),
            E,
            GOT,
        ],
        "violated",
        {"ended": 1},
    ),
    "refused as unknown where a renewal was perhaps too late": (
        [
            subscribe("a", 10, 20, expires="PT31S"),
            operation("renew", 40, 42, subscription="a", expires="PT1H"),
            unknown("pause", 45, 46),
            E,
            GOT,
        ],
        "holds",
        {},
    ),
    "refused as unknown after an unsubscribe that was never answered": (
        [subscribe("a", 10, 20), E, GOT, unsubscribe("a", 50, None), unknown("resume", 60, 61)],
        "holds",
        {},
    ),
    "refused with another status": (
        [subscribe("a", 10, 20), E, GOT, unknown("change", 60, 61, answer_status=422, filter=LOW)],
        "holds",
        {},
    ),
    "accepted after its expiry": (
        [
            subscribe("a", 10, 20, expires="PT25S"),
            E,
            GOT,
            operation("renew", 60, 61, subscription="a", expires="PT1H"),
        ],
        "violated",
        {"revived": 1},
    ),
    "accepted when it may not have expired": (
        [
            subscribe("a", 10, 20, expires="PT25S"),
            E,
            GOT,
            operation("renew", 45.2, 46, subscription="a", expires="PT1H"),
        ],
        "holds",
        {},
    ),
    "accepted after its expiry, but perhaps renewed": (
        [
            subscribe("a", 10, 20, expires="PT25S"),
            E,
            GOT,
            operation("renew", 41, None, subscription="a", expires="PT1H"),
            operation("pause", 60, 61, subscription="a"),
            operation("resume", 62, 63, subscription="a"),
        ],
        "holds",
        {},
    ),
    # -- expiry; time 0 is 2024-01-01T00:00:00Z and a tick a second
    "before the expiry": (
        [subscribe("a", 10, 20, expires="2024-01-01T00:00:41Z"), E],
        "violated",
        {"missing": 1},
    ),
    "about the expiry, notified": (
        [subscribe("a", 10, 20, expires="2024-01-01T00:00:35Z"), E, GOT],
        "holds",
        {},
    ),
    "about the expiry, within the clocks' tolerance": (
        [subscribe("a", 10, 20, expires="2024-01-01T00:00:40.2Z"), E, publish("f", 22, 23), got("f")],
        "holds",
        {},
    ),
    "at the tick of the expiry, as late as the clocks allow": (
        [subscribe("a", 10, 20, expires="2024-01-01T00:00:40.5Z"), E, publish("f", 22, 23), got("f")],
        "holds",
        {},
    ),
    "at the tick of the expiry, as early as the clocks allow": (
        [subscribe("a", 10, 20, expires="2024-01-01T00:00:29.5Z"), E, GOT],
        "violated",
        {"unexpected": 1},
    ),
    "after the expiry": (
        [subscribe("a", 10, 20, expires="2024-01-01T00:00:29Z"), E, GOT],
        "violated",
        {"unexpected": 1},
    ),
    "after the expiry that a duration gives": (
        [subscribe("a", 10, 20, expires="PT9S"), E, GOT],
        "violated",
        {"unexpected": 1},
    ),
    "before the expiry that a duration gives": (
        [subscribe("a", 10, 20, expires="PT31S"), E],
        "violated",
        {"missing": 1},
    ),
    "the expiry that was answered counts": (
        [subscribe("a", 10, 20, expires="PT1S", answer_expires="2024-01-01T00:01:00Z"), E],
        "violated",
        {"missing": 1},
    ),
    "renewed in time": (
        [
            subscribe("a", 10, 20, expires="PT15S"),
            operation("renew", 21, 22, subscription="a", expires="PT1H"),
            E,
        ],
        "violated",
        {"missing": 1},
    ),
    "renewed without an answer, notified": (
        [
            subscribe("a", 1, 2, expires="PT25S"),
            operation("renew", 21, None, subscription="a", expires="PT1H"),
            E,
            GOT,
        ],
        "holds",
        {},
    ),
    "renewed without an answer, not notified": (
        [
            subscribe("a", 1, 2, expires="PT25S"),
            operation("renew", 21, None, subscription="a", expires="PT1H"),
            E,
            publish("f", 5, 6),
            got("f"),
        ],
        "holds",
        {},
    ),
    "shortened by a renewal": (
        [subscribe("a", 1, 2), operation("renew", 10, 11, subscription="a", expires="PT5S"), E, GOT],
        "violated",
        {"unexpected": 1},
    ),
    "an expiry in the year 9999": (
        [subscribe("a", 10, 20, expires="9999-12-31T00:00:00Z"), E, GOT],
        "holds",
        {},
    ),
    # -- pause
    "paused notifications come after resuming": (
        [
            subscribe("a", 10, 20),
            operation("pause", 21, 22, subscription="a"),
            E,
            operation("resume", 50, 60, subscription="a"),
            GOT,
        ],
        "holds",
        {},
    ),
    "paused notifications that never come": (
        [
            subscribe("a", 10, 20),
            operation("pause", 21, 22, subscription="a"),
            E,
            operation("resume", 50, 60, subscription="a"),
        ],
        "violated",
        {"missing": 1},
    ),
    "still paused at the end": (
        [subscribe("a", 10, 20), operation("pause", 21, 22, subscription="a"), E],
        "unknown",
        {},
    ),
    "a notification while paused": (
        [subscribe("a", 10, 20), operation("pause", 21, 22, subscription="a"), E, GOT],
        "violated",
        {"unexpected": 1},
    ),
    "a notification while perhaps paused": (
        [subscribe("a", 10, 20), operation("pause", 21, None, subscription="a"), E, GOT],
        "holds",
        {},
    ),
    "a notification from before the pause": (
        [subscribe("a", 10, 20), E, operation("pause", 41, 42, subscription="a"), GOT],
        "holds",
        {},
    ),
    "kept while paused, then sent to the sink of the resumption": (
        [
            subscribe("a", 10, 20),
            operation("pause", 21, 22, subscription="a"),
            E,
            change("a", 45, 46, None, address="http://there/"),
            operation("resume", 50, 60, subscription="a"),
            got(time=70, address="http://there/", n=15),
        ],
        "holds",
        {},
    ),
    "sent to the sink of a later change, but it was never paused": (
        [
            subscribe("a", 10, 20),
            E,
            change("a", 45, 46, None, address="http://there/"),
            got(time=70, address="http://there/", n=15),
        ],
        "violated",
        {"unexpected": 1},
    ),
    "kept while paused and gone with the subscription": (
        [
            subscribe("a", 10, 20),
            publish("d", 21, 22),
            got("d", time=23),
            operation("pause", 24, 25, subscription="a"),
            E,
            unsubscribe("a", 50, 60),
        ],
        "holds",
        {},
    ),
    "published before the pause, and the subscription ended": (
        [
            subscribe("a", 10, 20),
            E,
            operation("pause", 41, 42, subscription="a"),
            unsubscribe("a", 50, 60),
        ],
        "violated",
        {"missing": 1},
    ),
    "paused, ended, and the id used again": (
        [
            subscribe("a", 10, 20),
            operation("pause", 21, 22, subscription="a"),
            E,
            unsubscribe("a", 50, 60),
            subscribe("a", 70, 80),
            operation("pause", 81, 82, subscription="a"),
            operation("resume", 83, 84, subscription="a"),
            publish("f", 90, 91),
            got("f", time=92),
        ],
        "holds",
        {},
    ),
    "resumed twice": (
        [
            subscribe("a", 10, 20),
            operation("pause", 21, 22, subscription="a"),
            E,
            operation("resume", 45, 50, subscription="a"),
            operation("resume", 200, 210, subscription="a"),
            GOT,
        ],
        "holds",
        {},
    ),
    # -- once
    "the same webhook-id again": ([*LIFE, E, GOT, got(time=110, n=15)], "holds", {}),
    "another webhook-id": ([*LIFE, E, GOT, got(time=110, hook="w2", n=15)], "violated", {"duplicate": 1}),
    "refused under one webhook-id, accepted under another": (
        [*LIFE, E, got(status=413, n=15), got(time=110, hook="w2", n=15)],
        "holds",
        {},
    ),
    "refused and never repeated": ([*LIFE, E, got(status=503, n=15)], "violated", {"missing": 1}),
    "refused, then accepted": ([*LIFE, E, got(status=503, n=15), got(time=110, n=15)], "holds", {}),
    "one webhook-id for two contents": (
        [*LIFE, E, publish("f", 50, 51), got("e", hook="w", n=15), got("f", hook="w")],
        "violated",
        {"altered": 1},
    ),
    "a pair twice in one POST": (
        [
            *LIFE,
            E,
            posted(
                {
                    "notifications": [
                        {
                            "topic": TOPIC,
                            "event": {"id": "e", "attributes": {"n": 15}},
                            "matches": [{"subscription": "a"}, {"subscription": "a"}],
                        }
                    ]
                },
                100,
                "w",
            ),
        ],
        "violated",
        {"duplicate": 1},
    ),
    # -- what a notification says
    "other attributes": ([*LIFE, E, got(n=16)], "violated", {"altered": 1}),
    "an attribute too many": ([*LIFE, E, got(n=15, s="x")], "violated", {"altered": 1}),
    "an attribute of another type": ([*LIFE, E, got(n="15")], "violated", {"altered": 1}),
    "undeclared fields as published": (
        [*LIFE, publish("e", 30, 40, n=15, more={"a": [1, None]}), got(n=15, more={"a": [1, None]})],
        "holds",
        {},
    ),
    "an undeclared field was changed": (
        [*LIFE, publish("e", 30, 40, n=15, more={"a": [1, None]}), got(n=15, more={"a": [True, None]})],
        "violated",
        {"altered": 1},
    ),
    "an undeclared field was dropped": (
        [*LIFE, publish("e", 30, 40, n=15, more=1), got(n=15)],
        "violated",
        {"altered": 1},
    ),
    "an attribute that the topic does not have": ([*LIFE, E, got(n=15, zzz=1)], "violated", {"altered": 1}),
    "null is missing, and notified as null": (
        [*LIFE, publish("e", 30, 40, n=15, s=None), got(n=15, s=None)],
        "holds",
        {},
    ),
    "a null was dropped": ([*LIFE, publish("e", 30, 40, n=15, s=None), GOT], "violated", {"altered": 1}),
    "the same instant in other words": (
        [*LIFE, publish("e", 30, 40, at="2024-01-01T01:00:00+01:00"), got(at="2024-01-01T00:00:00.000Z")],
        "violated",
        {"altered": 1},
    ),
    "another time of the event": (
        [*LIFE, publish("e", 30, 40, **{"$time": "2024-02-02T00:00:00Z"}), got()],
        "violated",
        {"altered": 1},
    ),
    "a POST that is no notification": (
        [*LIFE, E, GOT, said("notification", 100, address=ADDRESS, webhook="w", malformed="aGk=")],
        "violated",
        {"altered": 1},
    ),
    "before it was published": ([*LIFE, E, got(time=25, n=15)], "violated", {"unexpected": 1}),
    # -- where
    "at another address": ([*LIFE, E, got(address="http://there/", n=15)], "violated", {"unexpected": 1}),
    "to another recipient": ([*LIFE, E, got(recipient="x", n=15)], "violated", {"unexpected": 1}),
    "to its recipient": ([subscribe("a", 10, 20, recipient="x"), E, got(recipient="x", n=15)], "holds", {}),
    "at the old address after a change": (
        [
            subscribe("a", 10, 20, address="http://there/"),
            change("a", 21, 22, None),
            E,
            got(address="http://there/", n=15),
        ],
        "violated",
        {"unexpected": 1},
    ),
    "at the old address before a change": (
        [
            said("listening", 0, address="http://there/"),
            subscribe("a", 10, 20, address="http://there/"),
            E,
            change("a", 50, 60, None),
            got(address="http://there/", n=15),
        ],
        "holds",
        {},
    ),
    "an address that nobody recorded": ([subscribe("a", 10, 20, address="http://there/"), E], "unknown", {}),
    "an address that was recorded too late": (
        [said("listening", 35, address="http://there/"), subscribe("a", 10, 20, address="http://there/"), E],
        "unknown",
        {},
    ),
    "an address that was recorded not to the end": (
        [said("stopped", 50, address=ADDRESS), *LIFE, E],
        "unknown",
        {},
    ),
    "an address that fails on purpose": (
        [
            said("excused", 0, address="http://there/"),
            subscribe("b", 10, 20, address="http://there/"),
            *LIFE,
            E,
            GOT,
        ],
        "holds",
        {},
    ),
    # -- late
    "after the network was said to be at rest": (
        [*LIFE, E, said("quiet", 60), GOT],
        "violated",
        {"late": 1},
    ),
    "a repeat after that is not late": ([*LIFE, E, got(time=50, n=15), said("quiet", 60), GOT], "holds", {}),
    "paused over the rest": (
        [
            subscribe("a", 10, 20),
            operation("pause", 21, 22, subscription="a"),
            E,
            said("quiet", 60),
            operation("resume", 70, 80, subscription="a"),
            GOT,
        ],
        "holds",
        {},
    ),
    "at the tick of the rest": ([*LIFE, E, said("quiet", 60), got(time=60, n=15)], "holds", {}),
    # -- several dispatchers
    "published through two dispatchers, so that a later subscription may get it": (
        [publish("e", 30, 40, via="d1"), subscribe("a", 50, 60), publish("e", 70, 80, via="d2"), got()],
        "holds",
        {},
    ),
    "published through two dispatchers, so that a later subscription may not get it": (
        [
            publish("e", 30, 40, via="d1"),
            subscribe("a", 50, 60),
            publish("e", 70, 80, via="d2"),
            publish("f", 90, 91),
            got("f"),
        ],
        "holds",
        {},
    ),
    "published through two dispatchers while subscribed": (
        [*LIFE, publish("e", 30, 40, via="d1"), publish("e", 50, 60, via="d2")],
        "violated",
        {"missing": 1},
    ),
    # -- kept events
    "an event that is kept for later subscribers": (
        [publish("e", 1, 2, **{"$availability": 30}), subscribe("a", 10, 20)],
        "violated",
        {"missing": 1},
    ),
    "an event that is kept, notified": (
        [publish("e", 1, 2, **{"$availability": 30}), subscribe("a", 10, 20), got()],
        "holds",
        {},
    ),
    "an event that is kept for ever": (
        [publish("e", 1, 2, **{"$availability": "forever"}), subscribe("a", 10, 20)],
        "violated",
        {"missing": 1},
    ),
    "an event that is kept, and that only a later filter matches": (
        [
            publish("e", 1, 2, **{"$availability": 300}, n=15),
            subscribe("a", 10, 20, LOW),
            change("a", 30, 40, HIGH),
            publish("f", 50, 60, n=16),
            got("f", n=16),
        ],
        "holds",
        {},
    ),
    "an event that is kept is not for a later filter": (
        [
            publish("e", 1, 2, **{"$availability": 300}, n=15),
            subscribe("a", 10, 20, LOW),
            change("a", 30, 40, HIGH),
            got("e", n=15),
        ],
        "violated",
        {"unexpected": 1},
    ),
    "an event that was kept not long enough": (
        [publish("e", 1, 2, **{"$availability": 5}), subscribe("a", 10, 20), got()],
        "violated",
        {"unexpected": 1},
    ),
    "an event that was kept until about then": (
        [publish("e", 1, 2, **{"$availability": 12}), subscribe("a", 10, 20), publish("f", 30, 40), got("f")],
        "holds",
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_recording_gets_its_verdict(tmp_path: Path, case: str) -> None:
    steps, verdict, faults = CASES[case]
    report = check(tmp_path, *steps)
    assert (report.verdict, decisive(report)) == (verdict, faults), report.text()


@pytest.mark.parametrize("case", [name for name in CASES if CASES[name][1] == "violated"])
def test_a_violation_names_the_lines_that_prove_it(tmp_path: Path, case: str) -> None:
    steps, _, _ = CASES[case]
    report = check(tmp_path, *steps)
    (violation,) = report.violations
    assert any("line " in part for part in violation.story)
    assert violation.reason in report.text()


def test_the_story_of_a_missing_notification_is_complete(tmp_path: Path) -> None:
    (violation,) = check(tmp_path, subscribe("a", 10, 20, HIGH), E).violations
    assert violation.attributes == {"n": 15}
    assert violation.story == [
        'subscribe 10.000000 s … 20.000000 s filter {"n":{"gte":10}} to http://here/ (line 4, line 5)',
        'publish 30.000000 s … 40.000000 s (line 6, line 7) {"n":15}',
    ]


def test_a_notification_that_was_only_refused_is_said_to_be(tmp_path: Path) -> None:
    refused = check(tmp_path, *LIFE, E, got(status=503, n=15)).violations[0]
    assert refused.reason.endswith("never accepted, only refused")
    assert "answered 503" in refused.story[-1]
    other = check(tmp_path, *LIFE, E, publish("f", 50, 51), got("f")).violations[0]
    assert other.reason.endswith("never accepted")
