"""Messages whose parts disagree: a server refuses each with 400 and stays as it was, or ignores repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import structlog

from edn import protocol as protocol
from edn.errors import CorruptMessage
from tests.fuzz import wire

TOO_LARGE = 2**64 - 1


@pytest.fixture(scope="module")
def server() -> Iterator[wire.Server]:
    opened = wire.Server()
    yield opened
    opened.end()


def _segment(message: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = message["segments"][0] if "segments" in message else message["segment"]
    return found


def _set(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda message: message.__setitem__(name, value)


def _set_in_segment(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda message: _segment(message).__setitem__(name, value)


def _set_in_item(place: int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(message: dict[str, Any]) -> None:
        message["items"] = [list(item) for item in message["items"]]
        message["items"][0][place] = value

    return change


def _cut(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda message: _segment(message).__setitem__(name, _segment(message)[name][:-3])


CORRUPT: list[tuple[str, str, Callable[[dict[str, Any]], None]]] = [
    ("width that does not divide", "stream", _set_in_segment("width", 3)),
    ("width below zero", "stream", _set_in_segment("width", -1)),
    ("width beyond all", "stream", _set_in_segment("width", 2**40)),
    ("offsets of odd length", "stream", _cut("offsets")),
    ("times of odd length", "stream", _cut("times")),
    ("stamps of odd length", "stream", _cut("stamps")),
    ("points of odd length", "stream", _cut("points")),
    ("too few lines", "stream", _set_in_segment("lines", b"{}\n")),
    ("too many ids", "stream", _set_in_segment("ids", ["a", "b", "c", "d", "e"])),
    ("too many traces", "stream", _set_in_segment("traces", ["a"])),
    ("end before its beginning", "stream", _set("upto", 1)),
    ("offset beyond 64 bits", "stream", _set("upto", TOO_LARGE)),
    ("incarnation beyond 64 bits", "stream", _set("incarnation", TOO_LARGE)),
    ("store beyond 64 bits", "subscriptions", _set("incarnation", TOO_LARGE)),
    ("version beyond 64 bits", "subscriptions", _set_in_item(1, TOO_LARGE)),
    ("tenant with a slash", "subscriptions", _set_in_item(2, "acme/other")),
    ("ring beyond 64 bits", "subscriptions", _set("rings", [["r1", "c", None, TOO_LARGE, 1]])),
    ("page of another topic", "replay", _set_in_segment("topic", 99)),
    ("page of odd length", "replay", _cut("stamps")),
    ("page with a body that is no JSON", "replay", _set_in_segment("lines", b"{\n]\n")),
    ("page with a body that is no object", "replay", _set_in_segment("lines", b"1\n2\n")),
    ("question with a body that is no JSON", "explain", _set("line", b"\xff")),
    ("point of odd length", "explain", _set("point", b"x" * 7)),
    ("rows before the first", "arrivals/kept", _set("upto", -1)),
    ("name that is no text", "journey", _set("log", b"\xff\xfe")),
]


@pytest.mark.parametrize(("path", "change"), [row[1:] for row in CORRUPT], ids=[row[0] for row in CORRUPT])
def test_a_message_whose_parts_disagree_is_refused_and_changes_nothing(
    server: wire.Server, path: str, change: Callable[[dict[str, Any]], None]
) -> None:
    valid = next(message for route, message in wire._AFTER if route == path)
    message = msgspec.to_builtins(valid, builtin_types=(bytes,))
    change(message)
    status, answer = server.post(path, msgspec.msgpack.encode(message))
    assert status == 400, answer
    assert (server.disk(), server.memory()) == server.clean


def test_events_without_columns_are_read_as_such() -> None:
    server = wire.Server()
    message = msgspec.to_builtins(wire._AFTER[1][1], builtin_types=(bytes,))
    message["segments"][0]["width"] = 0
    status, answer = server.post("stream", msgspec.msgpack.encode(message))
    assert status == 200, answer
    server.end()


def test_text_that_is_no_utf8_is_refused(server: wire.Server) -> None:
    body = protocol.encode(protocol.TraceQuery("log-a", 5)).replace(b"log-a", b"\xff\xfeg-a")
    assert server.post("journey", body)[0] == 400
    with pytest.raises(CorruptMessage, match="the message must be TraceQuery"):
        protocol.decode(body, protocol.TraceQuery)


def test_a_filter_without_end_is_refused(server: wire.Server) -> None:
    _, store = wire._AFTER[2]
    body = protocol.encode(store).replace(msgspec.msgpack.encode({"gte": 1}), b"\x91" * 5000 + b"\xc0", 1)
    assert server.post("subscriptions", body)[0] == 400


def test_an_arrival_that_is_named_twice_arrives_once() -> None:
    server = wire.Server()
    with structlog.testing.capture_logs():
        status, answer = server.post(
            "arrivals", protocol.encode(protocol.Arrivals([("coming", 1), ("coming", 1)]))
        )
    assert status == 200, answer
    server.check_broken()
    server.reopen()
    server.end()
