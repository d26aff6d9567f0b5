"""One server's stream: what a frame holds when the server stands in the middle of what lies together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dispatcher.forwarding import Forwarder
from dispatcher.link import Link, Pressure
from dispatcher.metering import Meter
from dispatcher.records import EventsRecord
from dispatcher.routing import RoutingTable
from dispatcher.settings import Settings
from dispatcher.tail import Tail
from edn import wire


class _Log:
    id, incarnation = "abcdefghij", 1


def forwarder(tail: Tail, table: RoutingTable, acked: int) -> Forwarder:
    unused: Any = None
    return Forwarder(
        "s1",
        log=_Log(),  # type: ignore[arg-type]  # nothing is read from disk here
        tail=tail,
        table=table,
        channel=unused,
        settings=Settings(data=Path("nowhere"), secret="x" * 20),
        acked=acked,
        on_ack=lambda _: None,
        link=Link(),
        pressure=Pressure(lambda: 0),
        meter=Meter(),
    )


@pytest.mark.parametrize("acked", range(4, 11))
@pytest.mark.parametrize("routed_before", [True, False])
def test_a_frame_begins_after_the_cursor_even_inside_a_record(acked: int, routed_before: bool) -> None:
    """A server that lagged was sent requests from disk one by one; in memory several are one record."""
    table = RoutingTable()
    table.add("s1")
    record = EventsRecord(
        5, 1, 1, [], np.arange(6), b"".join(b"%d\n" % n for n in range(5, 11)), np.zeros((6, 1))
    )
    if routed_before:
        record.routed, record.servers = np.ones((6, 1), dtype=np.bool_), ("s1",)
    tail = Tail(head=4, limit_bytes=1 << 20)
    tail.extend([record])
    frame, events = forwarder(tail, table, acked)._gather()
    expected = list(range(acked + 1, 11))
    assert events == len(expected)
    if not expected:
        assert frame is None
        return
    assert frame is not None
    assert (frame.after, frame.upto) == (acked, 10)
    [segment] = frame.segments
    assert wire.int64_array(segment.offsets).tolist() == expected
    assert bytes(segment.lines).split() == [b"%d" % n for n in expected]
    assert record.routed is not None
    assert record.routed.all(), "what others read of the record stays as it is"
