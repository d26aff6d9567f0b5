"""Tail, frames, expiry and locks: the pieces between the log and a server."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from dispatcher.servers.forwarder import FrameBuilder
from dispatcher.servers.log_tail import Tail
from dispatcher.servers.pipeline import stack
from dispatcher.store.records import ControlRecord, EventsRecord
from dispatcher.subscriptions.expiry import parse_expires
from dispatcher.subscriptions.keyed_lock import KeyedLock
from edn import protocol
from edn.errors import InvalidInput
from edn.model.coordinates import instant, rfc3339


def record(first: int, count: int, *, topic: int = 1, width: int = 2, body: int = 10) -> EventsRecord:
    points = np.arange(float(count * width)).reshape(count, width)
    ids = [f"e{first + place}" for place in range(count)]
    return EventsRecord(
        first, first * 1000, topic, ids, np.arange(count), (b"x" * body + b"\n") * count, points
    )


def test_the_tail_gives_what_lies_beyond_an_offset() -> None:
    tail = Tail(head=10, limit_bytes=1 << 20)
    tail.extend([record(11, 3), record(14, 1)])
    assert tail.head == 14
    assert [one.last for one in tail.after(10) or []] == [13, 14]
    assert [one.last for one in tail.after(13) or []] == [14]
    assert tail.after(14) == []


def test_the_tail_says_when_it_no_longer_has_the_answer() -> None:
    tail = Tail(head=0, limit_bytes=5000)
    for offset in range(1, 101):
        tail.extend([record(offset, 1, body=100)])
    assert 0 < tail.floor < 100
    assert tail.after(tail.floor - 1) is None
    kept = tail.after(tail.floor)
    assert kept is not None
    assert [one.last for one in kept] == list(range(tail.floor + 1, 101))


def test_a_frame_holds_the_chosen_events_column_by_column() -> None:
    builder = FrameBuilder()
    builder.add_events(record(1, 3), np.array([True, False, True]))
    builder.add_events(record(4, 2, topic=2), np.array([False, False]))
    builder.add_events(record(6, 1), np.array([True]))
    builder.add_control(protocol.Control(offset=7, time=1, kind="join", incarnation=1))
    frame = builder.frame("log", 1, 0, 7)
    [segment] = frame.segments
    assert segment.topic == 1
    assert protocol.int64_array(segment.offsets).tolist() == [1, 3, 6]
    assert protocol.int64_array(segment.times).tolist() == [1000, 1000, 6000]
    assert protocol.points_array(segment.points, segment.width).tolist() == [[0, 1], [4, 5], [0, 1]]
    assert segment.ids == ["e1", "e3", "e6"]
    assert builder.events == 3
    assert frame.controls[0].offset == 7


def test_events_with_ids_and_traces_and_such_without_share_a_frame() -> None:
    plain, traced = record(1, 2), record(3, 2, width=3)
    plain.ids, traced.traces = [], ["t3", "t4"]
    builder = FrameBuilder()
    builder.add_events(plain, np.array([False, True]))
    builder.add_events(traced, np.array([True, True]))
    [segment] = builder.frame("0123456789", 1, 0, 4).segments
    assert segment.ids == ["01234567-2", "e3", "e4"]
    assert segment.traces == ["", "t3", "t4"]
    assert protocol.points_array(segment.points, segment.width)[0].tolist() == [2, 3, -np.inf]


def test_older_points_are_narrower_and_miss_the_rest() -> None:
    stacked = stack([np.zeros((1, 1)), np.ones((1, 3))])
    assert stacked.tolist() == [[0.0, -np.inf, -np.inf], [1.0, 1.0, 1.0]]


def test_a_frame_of_nothing_is_empty() -> None:
    builder = FrameBuilder()
    builder.add_events(record(1, 2), np.array([False, False]))
    assert builder.empty
    assert builder.frame("log", 1, 0, 2).segments == []


def test_a_control_record_occupies_one_offset() -> None:
    one = ControlRecord(5, "s", protocol.Control(offset=5, time=1, kind="deactivate", ids=["a"]))
    assert (one.first, one.last) == (5, 5)


NOW = instant("2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1S", 1),
        ("PT0.5S", 0.5),
        ("PT1H30M", 5400),  # 3600 + 30 × 60
        ("P1D", 86400),
        ("P1W", 604800),
        ("P1DT1H", 90000),  # 86400 + 3600
        ("1h", 3600),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("500ms", 0.5),
        ("1w2d", 777600),  # 9 × 86400
        ("2026-01-01T01:00:00+00:30", 1800),
    ],
)
def test_expiry_is_an_instant_or_a_duration(text: str, seconds: float) -> None:
    assert parse_expires(text, NOW) == NOW + seconds * 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "1 hour",
        "30m1h",
        "h",
        "1y",
        "-1h",
        "١h",
        "PT-1H",
        "2025-01-01T00:00:00Z",
        "2026-01-01",
        "P1Y",
        "PT0S",
        "P999999999D",
    ],
)
def test_other_expiries_are_refused_with_an_example_or_a_reason(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"such as 1h|in the future|year 9999"):
        parse_expires(text, NOW)


def test_instants_are_written_in_utc() -> None:
    assert rfc3339(NOW) == "2026-01-01T00:00:00Z"
    assert rfc3339(NOW + 1500) == "2026-01-01T00:00:00.001500Z"


def test_calls_about_one_name_follow_one_another_and_leave_nothing_behind() -> None:
    async def main() -> None:
        lock = KeyedLock()
        order: list[str] = []
        inside = asyncio.Event()
        release = asyncio.Event()

        async def first() -> None:
            async with lock.hold(["a", "b"]):
                inside.set()
                await release.wait()
                order.append("first")

        async def second() -> None:
            await inside.wait()
            async with lock.hold(["b"]):
                order.append("second")

        async def other() -> None:
            await inside.wait()
            async with lock.hold(["c"]):
                order.append("other")
                release.set()

        await asyncio.gather(first(), second(), other())
        assert order == ["other", "first", "second"]
        assert not lock._locks
        assert not lock._users

    asyncio.run(main())
