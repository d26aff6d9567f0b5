"""What is fuzzed: each target takes bytes, and raises only if something is wrong with us.

An input is refused by an `EdnError` below 500, or taken; what is taken must hold what the target says of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from edn.errors import EdnError
from edn.formats import cloudevents, strict_json
from edn.model.filter import Filter, dialects
from edn.model.schema import Schema
from edn_server.delivery.retry import Failed, asked, decide
from edn_server.policies import RetryPolicy
from tests.fuzz import soap, wire, xpath

SCHEMA = Schema.parse(
    {
        "symbol": "string",
        "price": "number",
        "volume": "integer",
        "halted": "boolean",
        "at": "time",
        "a.b": "number",
        "ce.type": "string",
        "ce.source": "string",
        "ce.subject": "string",
        "ce.data": "string",
        "ce.data_base64": "string",
        "ce.count": "integer",
    }
)
EVENTS = [
    b'{"symbol": "GE", "price": 31.5, "volume": 9007199254740993, "halted": false}',
    b'{"at": "2026-11-16T09:30:00Z", "a": {"b": -0.0}}',
    b"{}",
]
CLOUD_EVENTS = [
    b'{"ce": {"source": "/shops/7", "type": "sold", "subject": "tea", "count": 3}, "price": 2}',
    b'{"ce": {"source": "/v1/topics/t", "type": "edn.t"}}',
]


class WrongError(Exception):
    """Something holds that must not."""


def _refused(error: EdnError) -> None:
    if not 400 <= error.status < 500:
        raise WrongError(f"refused with {error.status}") from error
    json.dumps(error.problem())


def json_body(data: bytes) -> None:
    """Strict JSON, and the same bytes as events."""
    try:
        value = strict_json.decode(data)
    except EdnError as error:
        _refused(error)
    else:
        _same(value, json.loads(data))
    try:
        batch = SCHEMA.decode_events(data)
    except EdnError as error:
        _refused(error)
        return
    if len(batch.bodies) != len(batch) or len(batch.points) != len(batch):
        raise WrongError("a batch whose parts differ in length")
    if np.isnan(batch.points).any():
        raise WrongError("a point that is no number")
    for body in batch.bodies:
        if b"\n" in body:
            raise WrongError("a line that is two")
        again = SCHEMA.decode_events(body)
        if not np.array_equal(again.points, SCHEMA.decode_events(again.bodies[0]).points):
            raise WrongError("what is kept reads as another event")


def _same(ours: Any, theirs: Any) -> None:
    """As the standard library reads it; numbers beyond 64 bits are doubles here."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if list(ours) != list(theirs):
            raise WrongError("other keys")
        for key, value in theirs.items():
            _same(ours[key], value)
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(ours) != len(theirs):
            raise WrongError("another length")
        for one, other in zip(ours, theirs, strict=True):
            _same(one, other)
    elif isinstance(theirs, float) and not math.isfinite(theirs):
        raise WrongError("a number that is none")
    elif ours != theirs and not (type(ours) is float and type(theirs) is int and ours == float(theirs)):
        raise WrongError(f"{ours!r} is not {theirs!r}")


def filter_text(data: bytes) -> None:
    """A filter as text and as JSON: read, written, bound, compared, and asked about events."""
    given: list[Any] = []
    try:
        given.append(data.decode())
    except UnicodeDecodeError:
        pass
    try:
        given.append(strict_json.decode(data))
    except EdnError as error:
        _refused(error)
    for one in given:
        if one is None:
            continue
        try:
            parsed = Filter.parse(one)
        except EdnError as error:
            _refused(error)
            continue
        _check_filter(parsed)


def _check_filter(parsed: Filter) -> None:
    if Filter.parse(parsed.to_json()) != parsed:
        raise WrongError("its JSON form is another filter")
    if Filter.parse(parsed.to_text()) != parsed:
        raise WrongError("its text form is another filter")
    json.dumps(parsed.to_json())
    try:
        bound = parsed.bind(SCHEMA)
    except EdnError as error:
        _refused(error)
        return
    rects = bound.rects()
    for event in EVENTS:
        [point] = SCHEMA.decode_events(event).points
        inside = bool(((rects.lo <= point) & (point <= rects.hi)).all(axis=1).any())
        if bound.matches(SCHEMA.values(event)) and not inside:
            raise WrongError("an event matches outside of the rectangles")
    if not bound.overlaps(bound) and len(rects.lo) and rects.exact.any():
        raise WrongError("it does not overlap itself")


CONTEXT = dialects.Context.of("t", SCHEMA)


def subscription_filters(data: bytes) -> None:
    """The filters of the CloudEvents Subscriptions API: read, written back, and asked about events."""
    try:
        value = strict_json.decode(data)
    except EdnError as error:
        _refused(error)
        return
    given = value if isinstance(value, dict) else {"filters": value}
    source, types = given.get("source"), given.get("types")
    if not isinstance(source, str) or not source:
        source = None
    if not isinstance(types, list) or not types or not all(isinstance(one, str) and one for one in types):
        types = None
    try:
        found = dialects.read(CONTEXT, source=source, types=types, filters=given.get("filters"))
        bound = Filter.parse(found).bind(SCHEMA)
    except EdnError as error:
        _refused(error)
        return
    if found is not None:
        _check_filter(bound.filter)
    written = dialects.write(CONTEXT, found)
    again = Filter.parse(
        dialects.read(CONTEXT, source=written.source, types=written.types, filters=written.filters)
    ).bind(SCHEMA)
    for event in (*EVENTS, *CLOUD_EVENTS):
        values = SCHEMA.values(event)
        if bound.matches(values) != again.matches(values):
            raise WrongError("what is written back selects other events")


def cloud_events(data: bytes) -> None:
    """A request of CloudEvents: the first byte chooses the mode, headers are lines before an empty one."""
    mode = cloudevents.MODES[data[0] % 3] if data else "structured"
    head, _, body = data[1:].partition(b"\n\n")
    headers = []
    for line in head.split(b"\n")[:64]:
        name, colon, value = line.partition(b":")
        if colon:
            headers.append((name.strip().lower(), value.strip()))
    kind = next((value for name, value in headers if name == b"content-type"), b"")
    try:
        cloudevents.mode_of(kind, headers)
        events = cloudevents.read(mode, kind, headers, body if mode == "binary" else data[1:])
        plain = cloudevents.plain(events, SCHEMA.types)
        batch = SCHEMA.decode_events(plain)
    except EdnError as error:
        _refused(error)
        return
    for event, kept in zip(events, batch.bodies, strict=True):
        told = {"id": f"{event.context['source']}#{event.context['id']}", "time": "2026-11-16T09:30:00Z"}
        made = cloudevents.from_notification("t", {**told, "attributes": msgspec.Raw(kept)})
        for name in ("id", "source", "type"):
            if made.context[name] != event.context[name]:
                raise WrongError(f"{name} came back as {made.context[name]!r}")
        fields, _, _ = cloudevents.as_binary(made)
        for name, value in fields:
            value.encode("ascii")
            meant = made.context.get(name.removeprefix("ce-"), cloudevents.SPECVERSION)
            text = str(meant).lower() if isinstance(meant, bool) else str(meant)
            if cloudevents.header_value(value.encode()) != text:
                raise WrongError(f"{name} is not read as it was written")
        [again] = cloudevents.read(
            "structured", b"", [], msgspec.json.encode(cloudevents.as_structured(made))
        )
        if again.context != {**made.context, "specversion": "1.0"} or _text(again.data) != _text(made.data):
            raise WrongError("structured and read again it is another event")


def _text(data: msgspec.Raw | None) -> bytes | None:
    return None if data is None else bytes(data)


#: a fixed time, and one at the end of what a date can say
_NOW = (datetime(2026, 11, 16, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))


def retry_after(data: bytes) -> None:
    """The header of a sink's answer, as the connection hands it on: the delay is finite and bounded."""
    policy = RetryPolicy()
    longest = max(*policy.steps, policy.longest_asked)
    for text in (data.decode("latin-1"), data.decode("utf-8", "replace")):
        for now in _NOW:
            seconds = asked(text, now, policy.longest_asked)
            if not 0 <= seconds <= policy.longest_asked:
                raise WrongError(f"a delay of {seconds!r} s")
            for status in (429, 503):
                after = Failed(attempt=1, failures=1, age=0.0)
                found = decide(policy, status, text, after, chance=0.5, now=now)
                if found.kind != "again" or not 0 < found.delay <= longest:
                    raise WrongError(f"{found} after Retry-After")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "retry": retry_after,
    "server": wire.server,
    "wire": wire.decoders,
    "json": json_body,
    "filter": filter_text,
    "cloudevents": cloud_events,
    "dialects": subscription_filters,
    "soap": soap.one,
    "xpath": xpath.one,
}

#: where each begins
SEEDS: dict[str, list[bytes]] = {
    "retry": [b"120", b"Wed, 21 Oct 2026 07:28:00 GMT", b"1 Nov c026 21:925 +9999999999", b"-1", b"1e9"],
    "server": wire.SERVER_SEEDS,
    "wire": wire.DECODER_SEEDS,
    "soap": soap.SEEDS,
    "xpath": xpath.SEEDS,
    "json": [
        *EVENTS,
        b"[" + EVENTS[0] + b"]",
        b'{"\\u003a": 1, "x": [1e400, NaN]}',
        b'{"$id": "x", "price": 1}',
    ],
    "filter": [
        b'symbol == "GE" and (price > 30 or not halted) and exists(a.b)',
        b'price between 1 and 2 or symbol in ("a", "b") or symbol prefix "x"',
        b'{"symbol": "GE", "price": {"gt": 3.0}, "$any": [{"volume": {"in": [1, 2]}}, {"$not": {"a.b": 1}}]}',
        b'{"symbol": {"prefix": "N", "suffix": "Y", "contains": "Y", "not": {"eq": "NY"}}, '
        b'"at": {"lt": "2026-01-01T00:00:00Z"}}',
    ],
    "dialects": [
        b'{"source": "/shops/7", "types": ["sold", "edn.t"], "filters": [{"suffix": {"subject": "a"}}]}',
        b'{"filters": [{"any": [{"exact": {"count": "3"}}, {"not": {"prefix": {"source": "/v1/"}}}]}, '
        b'{"urn:edn:filter": "price > 1"}]}',
        b'{"filters": [{"all": [{"urn:edn:filter": {"$not": {"ce.type": ["a", "b"]}}}, '
        b'{"exact": {"type": "sold", "subject": "tea"}}]}]}',
    ],
    "cloudevents": [
        b"\x00ce-specversion: 1.0\nce-id: 1\nce-source: /s\nce-type: t\ncontent-type: application/json\n\n"
        b'{"price": 1}',
        b'\x01{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"price": 1}}',
        b'\x01{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "count": 3, '
        b'"data_base64": "AAE="}',
        b'\x02[{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "subject": "\\u00e9", '
        b'"data": "x"}]',
    ],
}
