"""A subscription that moves among servers which read two logs: everything is heard once, whoever is late.

An event may come by one log or by both. Each server reads each log when it likes; the second dispatcher
learns of changes later than the first. Beside that, every server counts what waits as the running one does.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from serverkit import LOG, Kit, activate, control, item, segment

from edn import protocol
from edn_server.handover import departures as departing
from edn_server.handover.arrivals import FinishArrivals, StoreBuffered, StoreDelivered
from edn_server.handover.departures import ReportDepartures
from edn_server.ingest.apply_frame import Applied, ApplyFrame
from edn_server.ingest.control_records import FollowLog
from edn_server.outbox import cleanup
from edn_server.storage.outbox import Event
from edn_server.storage.writer import Call

OTHER = "log-b"
LOGS = (LOG, OTHER)
URL = "http://127.0.0.1:9/s"
EVENT = {"symbol": "GE", "price": 31.0}


@dataclass
class Server:
    kit: Kit
    #: what waits, as counted
    backlog: int = 0
    batch: int = 0
    read: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LOGS, 0))

    def applied(self, applied: Applied, events: dict[int, Event]) -> None:
        self.backlog += applied.entries

    def check(self) -> None:
        (waiting,) = self.kit.db.execute("SELECT coalesce(sum(events), 0) FROM outbox").fetchone()
        assert self.backlog == waiting


@dataclass
class World:
    servers: list[Server]
    #: of each log: (offset, server or None for an event, control or the event's id)
    logs: dict[str, list[tuple[int, int | None, protocol.Control | str]]] = field(
        default_factory=lambda: {log: [] for log in LOGS}
    )
    at: int = 0
    version: int = 1
    revision: int = 0
    paused: bool = False
    #: what the second log has yet to learn
    news: list[list[tuple[int, str, dict[str, object]]]] = field(default_factory=list)
    #: where it comes from, and as which version it goes on
    unsettled: tuple[int, int] | None = None
    heard: list[str] = field(default_factory=list)
    found: set[str] = field(default_factory=set)

    # -- what dispatchers do ----------------------------------------------------------------------------

    def _append(self, log: str, server: int, kind: str, fields: dict[str, object]) -> None:
        offset = len(self.logs[log]) + 1
        record = control(offset, kind, **fields)  # type: ignore[arg-type]  # one of the kinds
        self.logs[log].append((offset, server, record))

    def _change(self, *records: tuple[int, str, dict[str, object]]) -> None:
        """The first log has it now, the second one before the next change."""
        self.merge()
        for record in records:
            self._append(LOG, *record)
        self.news.append(list(records))

    def merge(self) -> None:
        for records in self.news:
            for record in records:
                self._append(OTHER, *record)
        self.news.clear()

    def publish(self, logs: tuple[str, ...]) -> None:
        id = f"x{len(self.found)}"
        self.found.add(id)
        for log in logs:
            self.logs[log].append((len(self.logs[log]) + 1, None, id))

    def first(self) -> None:
        self.publish((LOG,))

    def second(self) -> None:
        self.publish((OTHER,))

    def both(self) -> None:
        self.publish(LOGS)

    def pause(self) -> None:
        self.revision += 1
        self.paused = not self.paused
        kind = "pause" if self.paused else "resume"
        self._change((self.at, kind, {"ids": ["s"], "revision": self.revision}))

    def move(self, by: int) -> None:
        if self.unsettled is not None:
            return
        self.merge()
        self.version += 1
        there = (self.at + by) % 3
        stored = protocol.msgspec.structs.replace(item("s", version=self.version, url=URL), arriving=True)
        self.servers[there].kit.store(stored)
        named: dict[str, object] = {"versions": [("s", self.version)]}
        records = [(self.at, "move", named), (there, "move", named)]
        if self.paused:
            self.revision += 1
            records.append((there, "pause", {"ids": ["s"], "revision": self.revision}))
        self.unsettled = (self.at, self.version)
        self.at = there
        self._change(*records)

    def move_on(self) -> None:
        self.move(1)

    def move_back(self) -> None:
        self.move(2)

    def settle(self) -> None:
        if self.unsettled is None:
            return
        where, version = self.unsettled
        source, destination = self.servers[where], self.servers[self.at]
        answer, _ = source.kit.writer.submit(
            ReportDepartures(source.kit.registry, protocol.Departures([("s", version)]))
        ).result(30)
        if answer.keeping:
            self._hand_over(source, destination, version)
        if answer.delivered:
            self._tell(source, destination)
            arrive = FinishArrivals(
                destination.kit.registry, protocol.Arrivals([("s", version)]), destination.applied
            )
            destination.kit.writer.submit(arrive).result(30)
            self.unsettled = None

    def _hand_over(self, source: Server, destination: Server, version: int) -> None:
        position = 0
        while True:
            question = protocol.BufferedQuery("s", position)
            call = Call(lambda db, q=question: departing.buffered_page(db, q))
            page = source.kit.writer.submit(call).result(30)
            page = protocol.msgspec.structs.replace(page, version=version)
            destination.batch += 1
            job = StoreBuffered(destination.kit.registry, destination.batch, page, destination.applied)
            taken = destination.kit.writer.submit(job).result(30)
            if taken.unknown or (page.final and taken.position >= page.upto):
                break
            position = taken.position
        forget = protocol.Departures([], forget=["s"])
        _, dropped = source.kit.writer.submit(ReportDepartures(source.kit.registry, forget)).result(30)
        source.backlog -= dropped

    def _tell(self, source: Server, destination: Server) -> None:
        question = protocol.DeliveredIdsQuery(["s"], (-1, ""))
        page = source.kit.writer.submit(Call(lambda db: departing.delivered_page(db, question))).result(30)
        destination.kit.writer.submit(
            StoreDelivered(destination.kit.registry, page, destination.applied)
        ).result(30)

    # -- what servers do --------------------------------------------------------------------------------

    def read(self, place: int, log: str) -> None:
        server = self.servers[place]
        after, records = server.read[log], self.logs[log]
        fresh = records[after:]
        if not fresh:
            return
        events = [(offset, str(id)) for offset, to, id in fresh if to is None]
        controls = [each for _, to, each in fresh if to == place and isinstance(each, protocol.Control)]
        segments = []
        if events:
            plain = segment([(offset, EVENT) for offset, _ in events])
            segments = [protocol.msgspec.structs.replace(plain, ids=[id for _, id in events])]
        server.batch += 1
        # Offset 1 of what a server sees is its join.
        frame = protocol.Frame(log, 1, after + 1, len(records) + 1, _later(controls), _shifted(segments))
        server.kit.writer.submit(
            ApplyFrame(server.kit.registry, server.kit.epoch, server.batch, frame, server.applied)
        ).result(30)
        server.read[log] = len(records)

    def deliver(self, place: int) -> None:
        server = self.servers[place]
        rows = [row for row in server.kit.rows() if row.address]
        for row in rows:
            for entry in server.kit.body(row)["notifications"]:
                self.heard.append(entry["event"]["id"])
        server.backlog -= server.kit.writer.submit(
            cleanup.Settle([(row.id, row.frame_id) for row in rows])
        ).result(30)


def _later(controls: list[protocol.Control]) -> list[protocol.Control]:
    return [protocol.msgspec.structs.replace(each, offset=each.offset + 1) for each in controls]


def _shifted(segments: list[protocol.Segment]) -> list[protocol.Segment]:
    return [
        protocol.msgspec.structs.replace(
            each, offsets=protocol.int64_bytes(protocol.int64_array(each.offsets) + 1)
        )
        for each in segments
    ]


_CHANGES = ["first", "second", "both", "both", "pause", "move_on", "move_back", "merge", "settle", "settle"]
_STEPS = st.lists(
    st.one_of(
        st.sampled_from(_CHANGES),
        st.tuples(st.just("read"), st.integers(0, 2), st.sampled_from(LOGS)),
        st.tuples(st.just("deliver"), st.integers(0, 2)),
    ),
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(_STEPS)
def test_whoever_reads_what_when_everything_is_heard_once(steps: list[str | tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        servers = [Server(Kit(Path(folder) / name)) for name in ("a", "b", "c")]
        for server in servers:
            server.kit.registry.multi_dispatcher = True
            for url, log in (("http://here", LOG), ("http://there", OTHER)):
                server.kit.writer.submit(FollowLog(server.kit.registry, url, log, 1)).result(30)
                server.kit.frame(0, 1, control(1, "join", incarnation=1), log=log)
            server.batch = 10
        world = World(servers)
        servers[0].kit.store(item("s", url=URL))
        for log in LOGS:
            world.logs[log].append((1, 0, activate(1, ("s", 1))))
        for step in steps:
            if isinstance(step, str):
                getattr(world, step)()
            else:
                getattr(world, str(step[0]))(*step[1:])
            for server in servers:
                server.check()
        if world.paused:
            world.pause()
        world.merge()
        for _ in range(3):
            for place in range(3):
                for log in LOGS:
                    world.read(place, log)
                world.deliver(place)
            world.settle()
        assert world.unsettled is None
        assert sorted(world.heard) == sorted(world.found)
        for server in servers:
            server.check()
            assert server.backlog == 0
            server.kit.close()
