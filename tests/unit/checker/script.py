"""Recordings written by hand: a few steps with their times, everything usual around them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edn.tools.checker import Report, check_recording

TOPIC = "t"
ATTRIBUTES = {"n": "integer", "s": "string", "x": "number", "b": "boolean", "at": "time"}
ADDRESS = "http://here/"
#: 2024-01-01T00:00:00Z is time 0 of the recordings
WALL = 1_704_067_200_000_000_000
#: one tick of the scripts in nanoseconds
TICK = 1_000_000_000

Record = dict[str, Any]


@dataclass
class Step:
    """Some records, each with its time in ticks."""

    records: list[tuple[float, Record]] = field(default_factory=list)


_numbers: Iterator[int] = iter(range(1, 10**9))


def operation(kind: str, begin: float, end: float | None, answer: str = "ok", **fields: Any) -> Step:
    """`end` None: never answered. Fields that begin with `answer_` are the answer's."""
    op = next(_numbers)
    asked = {name: value for name, value in fields.items() if not name.startswith("answer_")}
    answered = {name[7:]: value for name, value in fields.items() if name.startswith("answer_")}
    records: list[tuple[float, Record]] = [(begin, {"record": "invoke", "op": op, "kind": kind, **asked})]
    if end is not None:
        records.append((end, {"record": answer, "op": op, **answered}))
    return Step(records)


def subscribe(
    id: str | None, begin: float, end: float | None, filter: Any = None, answer: str = "ok", **fields: Any
) -> Step:
    given = {"topic": TOPIC, "filter": filter, "address": ADDRESS, **fields}
    return operation("subscribe", begin, end, answer, subscription=id, **given)


def change(id: str, begin: float, end: float | None, filter: Any, answer: str = "ok", **fields: Any) -> Step:
    given = {"filter": filter, "address": ADDRESS, **fields}
    return operation("change", begin, end, answer, subscription=id, **given)


def unsubscribe(id: str, begin: float, end: float | None, answer: str = "ok", **fields: Any) -> Step:
    return operation("unsubscribe", begin, end, answer, subscription=id, **fields)


def publish(
    id: str | None,
    begin: float,
    end: float | None,
    answer: str = "ok",
    *,
    via: str | None = "d",
    **values: Any,
) -> Step:
    event = values if id is None else {"$id": id, **values}
    return operation("publish", begin, end, answer, topic=TOPIC, events=[event], via=via)


def batch(ids: str, begin: float, end: float | None, answer: str = "ok", **values: Any) -> Step:
    """Several events of the same values in one request."""
    events = [{"$id": id, **values} for id in ids.split()]
    return operation("publish", begin, end, answer, topic=TOPIC, events=events, via="d")


def notified(
    subscription: str,
    event: str,
    time: float,
    hook: str | None = None,
    *,
    address: str = ADDRESS,
    recipient: str | None = None,
    status: int = 204,
    topic: str = TOPIC,
    stamp: str = "2024-01-01T00:00:00Z",
    **values: Any,
) -> Step:
    body = {
        "notifications": [
            {
                "topic": topic,
                "event": {"id": event, "time": stamp, "attributes": values},
                "matches": [{"subscription": subscription, "recipient": recipient}],
            }
        ]
    }
    return posted(body, time, hook or f"{subscription}/{event}", address=address, status=status)


def posted(body: Any, time: float, hook: str, *, address: str = ADDRESS, status: int = 204) -> Step:
    record = {"record": "notification", "address": address, "webhook": hook, "status": status, "body": body}
    return Step([(time, record)])


def said(record: str, time: float, **fields: Any) -> Step:
    return Step([(time, {"record": record, **fields})])


def lines(
    *steps: Step,
    listening: bool = True,
    quiet: float | None = 1000,
    end: bool = True,
    header: Mapping[str, Any] | None = None,
) -> list[str]:
    """The lines of a whole recording: header, topic, a listening address, the steps, rest, end."""
    records: list[tuple[float, Record]] = [
        (0, {"record": "header", "version": 1, "wall": WALL, "clock_tolerance": 0.5, **(header or {})}),
        (0, {"record": "topic", "topic": TOPIC, "attributes": ATTRIBUTES}),
    ]
    if listening:
        records.append((0, {"record": "listening", "address": ADDRESS}))
    body = [record for step in steps for record in step.records]
    if quiet is not None:
        body.append((quiet, {"record": "quiet"}))
    body.sort(key=lambda timed: timed[0])
    records += body
    if end:
        records.append((max(1001, records[-1][0]), {"record": "end"}))
    return [json.dumps({**record, "time": round(time * TICK)}) for time, record in records]


def write(path: Path, *steps: Step, **around: Any) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines(*steps, **around)))
    return path


# -- the recording that most begin with -------------------------------------------------------------------

#: a subscription: answered at 20, ended between 80 and 90
LIFE = (subscribe("a", 10, 20), unsubscribe("a", 80, 90))


def got(event: str = "e", time: float = 100, **more: Any) -> Step:
    return notified("a", event, time, **more)


#: an event that it is due, and its notification
E = publish("e", 30, 40, n=15)
GOT = got(n=15)


def check(path: Path, *steps: Step, options: dict[str, Any] | None = None, **around: Any) -> Report:
    """What the checker says of a recording of these steps."""
    return check_recording(write(path / "run.jsonl", *steps, **around), **(options or {}))
