"""One server's stream: what a frame holds when the server stands in the middle of what lies together."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.forwarder import Forwarder
from dispatcher.servers.log_tail import Tail
from dispatcher.store.records import EventsRecord
from edn import protocol
from edn.summary import Summary


class _Log:
    id, incarnation = "abcdefghij", 1


def forwarder(
    tail: Tail, table: RoutingTable, acked: int, *, server: str = "s1", log: _Log | None = None
) -> Forwarder:
    unused: Any = None
    return Forwarder(
        server,
        log=log or _Log(),  # type: ignore[arg-type]  # a stand-in
        tail=tail,
        table=table,
        send=unused,
        acked=acked,
        on_frame=lambda *_: None,
        on_progress=lambda: None,
        on_ack=lambda _: None,
    )


def gather(one: Forwarder) -> tuple[protocol.Frame | None, int]:
    """The next frame, of records that are in memory, or else on disk."""
    records = one._tail.after(one._scanned)
    return one._gather(asyncio.run(one._log.read(one._scanned, 1 << 20)) if records is None else records)


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
    frame, events = gather(forwarder(tail, table, acked))
    expected = list(range(acked + 1, 11))
    assert events == len(expected)
    if not expected:
        assert frame is None
        return
    assert frame is not None
    assert (frame.after, frame.upto) == (acked, 10)
    [segment] = frame.segments
    assert protocol.int64_array(segment.offsets).tolist() == expected
    assert bytes(segment.lines).split() == [b"%d" % n for n in expected]
    assert record.routed is not None
    assert record.routed.all(), "what others read of the record stays as it is"


class _Disk(_Log):
    """A log whose every read gives fresh records, as from disk."""

    async def read(self, after: int, size: int) -> list[EventsRecord]:
        return [record_of_ten()]


def record_of_ten() -> EventsRecord:
    lines = b"".join(b"%d\n" % n for n in range(10))
    return EventsRecord(1, 1, 7, [], np.arange(10), lines, np.arange(10.0)[:, None])


@pytest.mark.parametrize("cut", ["waste", "weighted"])
def test_events_read_back_from_disk_are_not_counted_again(cut: str) -> None:
    """Routing ratios and the sample for weighted cuts hold each published event once."""
    servers = ("s1", "s2", "s3")
    table = RoutingTable(cut=cut)
    for place, server in enumerate(servers):
        table.add(server)
        table.accept(server, 1, 1, {7: Summary.build(np.array([[place * 3.0]]), np.array([[5.0 + place]]))})
    committed = record_of_ten()
    expected = table.route(7, committed.points)
    sample = table._samples[7].seen if cut == "weighted" else None
    assert [table.describe(server).asked for server in servers] == [10, 10, 10]
    counted = [table.describe(server).routed for server in servers]
    evicted = Tail(head=10, limit_bytes=1 << 20)  # everything up to 10 is on disk only
    for place, server in enumerate(servers):
        one = forwarder(evicted, table, 0, server=server, log=_Disk())
        frame, events = gather(one)
        assert frame is not None
        [segment] = frame.segments
        assert protocol.int64_array(segment.offsets).tolist() == [
            1 + row for row in np.flatnonzero(expected[:, place])
        ]
        assert events == int(expected[:, place].sum())
    assert [table.describe(server).asked for server in servers] == [10, 10, 10]
    assert [table.describe(server).routed for server in servers] == counted
    assert (table._samples[7].seen if cut == "weighted" else None) == sample


def test_a_server_that_came_after_a_commit_gets_a_column_of_its_own() -> None:
    """The columns of the servers that were there stay as they were routed."""
    table = RoutingTable()
    for server in ("s1", "s2"):
        table.add(server)
    table.accept("s2", 1, 1, {})
    record = record_of_ten()
    record.routed, record.servers = np.zeros((10, 1), dtype=np.bool_), ("s2",)
    before = record.routed
    tail = Tail(head=0, limit_bytes=1 << 20)
    tail.extend([record])
    assert gather(forwarder(tail, table, 0))[1] == 10
    assert record.servers == ("s2", "s1")
    assert record.routed.tolist() == [[False, True]] * 10
    assert before.shape == (10, 1)
    assert table.describe("s1").asked == table.describe("s2").asked == 0
