"""A server's inside on a real data folder, without network: store, stream, look at the outbox, reopen."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from edn import protocol
from edn.formats import sink_settings
from edn.formats.sink_settings import SinkSettings
from edn.formats.webhooks import KeyRing
from edn.model.schema import Schema
from edn.runtime.ownership import share
from edn.runtime.postgres.database import Database
from edn.runtime.secret_box import SecretBox
from edn_server.ingest import undecided as doubts
from edn_server.ingest.apply_frame import Applied, ApplyFrame
from edn_server.ingest.replay import ApplyReplay
from edn_server.outbox import bodies, cleanup
from edn_server.storage import outbox, payloads
from edn_server.storage.database import SqliteStore
from edn_server.storage.interface import Reader
from edn_server.storage.postgres.store import PostgresStore
from edn_server.storage.writer import SqliteJobs, Writer
from edn_server.subscriptions.load import load
from edn_server.subscriptions.store import StoreVersions, bind_filters

COLUMNS = [("symbol", "string"), ("price", "number")]
LOG = "log-a"
SINK = "http://127.0.0.1:9/hook"
#: variable with the URL of a PostgreSQL database in which kits keep their shards
DATABASE = "EDN_TEST_DATABASE"
BOX = SecretBox([bytes(32)])


def topic(
    uid: int = 1,
    columns: Sequence[tuple[str, str]] = COLUMNS,
    name: str = "quotes",
    tenant: str = "",
) -> protocol.TopicInfo:
    return protocol.TopicInfo(uid, tenant, name, list(columns), "scan")


def item(
    id: str,
    filter: Any = None,
    *,
    version: int = 1,
    url: str = SINK,
    recipient: str | None = None,
    expires: int | None = None,
    ring: str = "",
    tenant: str = "",
    settings: SinkSettings | None = None,
) -> protocol.StoreItem:
    text = "" if settings is None else sink_settings.encode(settings)
    return protocol.StoreItem(
        id, version, tenant, "owner", filter, url, recipient, expires, ring, settings=text
    )


def control(offset: int, kind: protocol.Kind, *, time: int | None = None, **fields: Any) -> protocol.Control:
    return protocol.Control(offset=offset, time=offset if time is None else time, kind=kind, **fields)


def activate(offset: int, *versions: tuple[str, int]) -> protocol.Control:
    return control(offset, "activate", versions=list(versions))


def segment(
    events: Iterable[tuple[int, dict[str, Any]]],
    *,
    uid: int = 1,
    columns: Sequence[tuple[str, str]] = COLUMNS,
    times: dict[int, int] | None = None,
) -> protocol.Segment:
    """Events as (offset, attributes); an event's id is e<offset>, its log time its offset unless given."""
    listed = list(events)
    batch = Schema.from_wire(columns).decode_events(
        json.dumps([attributes for _, attributes in listed]).encode()
    )
    offsets = [offset for offset, _ in listed]
    return protocol.Segment(
        topic=uid,
        offsets=protocol.int64_bytes(offsets),
        times=protocol.int64_bytes([(times or {}).get(offset, offset) for offset in offsets]),
        stamps=protocol.int64_bytes([offset * 1_000_000 for offset in offsets]),
        points=protocol.points_bytes(batch.points),
        width=len(columns),
        ids=[f"e{offset}" for offset in offsets],
        lines=batch.lines,
    )


class Shard(PostgresStore):
    """The shard of a kit; its connections read only."""

    def connect(self, *, read_only: bool = False) -> Any:
        return self._link.reader()


class Kit:
    """One server, opened and reopened as often as a test likes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._batch = 0
        self.fatal: list[BaseException] = []
        #: batch and payloads of the newest frame
        self.payloads: tuple[int, dict[int, payloads.Event]] = (0, {})
        #: called after each commit of a frame, in the writer's thread
        self.on_applied: Callable[[Applied], None] = lambda applied: None
        self.open()

    def open(self) -> None:
        self.folder: Any
        self.db: Any
        url = os.environ.get(DATABASE)
        if url:
            schema = f"kit_{hashlib.blake2b(bytes(self._path), digest_size=8).hexdigest()}"
            self.folder = Shard(Database.parse(url, schema, allow_single=True), "s1", box=BOX)
            self.registry = self.folder.load(load)
            self.folder.start(self.fatal.append, lambda: None)
            self.writer = self.folder.writer
            self.db = self.folder.connect()
        else:
            self.folder = SqliteStore(self._path)
            self.db = self.folder.connect()
            self.registry = load(self.db)
            self.writer = Writer(lambda writer: SqliteJobs(writer, self.db), self.fatal.append)
        self.epoch = self.folder.identity.epoch
        share(self.registry)

    def close(self) -> None:
        self.writer.close()
        self.folder.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def store(
        self,
        *items: protocol.StoreItem,
        info: protocol.TopicInfo | None = None,
        log: str = LOG,
        incarnation: int = 1,
        rings: Sequence[KeyRing] = (),
        credentials: dict[str, str] | None = None,
        topics: Sequence[protocol.TopicInfo] = (),
    ) -> protocol.Stored:
        request = protocol.Store(
            log,
            incarnation,
            info or topic(),
            list(items),
            list(rings),
            credentials=credentials or {},
            topics=list(topics),
        )
        job = StoreVersions(self.registry, self.epoch, request, bind_filters(request))
        return self.writer.submit(job).result(30)

    def frame(
        self,
        after: int,
        upto: int,
        *controls: protocol.Control,
        segments: Sequence[protocol.Segment] = (),
        events: Iterable[tuple[int, dict[str, Any]]] = (),
        times: dict[int, int] | None = None,
        log: str = LOG,
        incarnation: int = 1,
    ) -> Applied:
        self._batch = max(self._batch, self._newest_batch()) + 1
        listed = list(events)
        own = [segment(listed, times=times)] if listed else []
        frame = protocol.Frame(log, incarnation, after, upto, list(controls), [*own, *segments])
        # Through the wire, so that nothing works that would not travel.
        frame = protocol.msgspec.msgpack.decode(protocol.encode(frame), type=protocol.Frame)
        job = ApplyFrame(self.registry, self.epoch, self._batch, frame, self._remember)
        return self.writer.submit(job).result(30)

    def _remember(self, applied: Applied, events: dict[int, payloads.Event]) -> None:
        self.payloads = (applied.frame_id, events)
        self.on_applied(applied)

    def replay(
        self,
        id: str,
        after: int,
        upto: int,
        events: Iterable[tuple[int, dict[str, Any]]] = (),
        *,
        version: int = 1,
        final: bool = False,
        log: str = LOG,
    ) -> protocol.ReplayAck:
        self._batch = max(self._batch, self._newest_batch()) + 1
        listed = list(events)
        own = segment(listed) if listed else None
        page = protocol.ReplayPage(log, id, version, after, upto, own, final)
        page = protocol.msgspec.msgpack.decode(protocol.encode(page), type=protocol.ReplayPage)
        return self.writer.submit(ApplyReplay(self.registry, self._batch, page, lambda *_: None)).result(30)

    def decide(self) -> int:
        """Decide all rows in doubt; how many there were."""
        decided = 0
        with contextlib.closing(self.folder.connect(read_only=True)) as reader:
            cache = doubts.FilterCache()
            while found := doubts.find(reader):
                for row in [row for rows in found.values() for row in rows]:
                    decision = doubts.Decision(row, cache)
                    while not decision.done:
                        decision.run(reader, 0.0)
                    self.writer.submit(doubts.StoreDecision(decision, self.registry)).result(30)
                    decided += 1
        return decided

    def reader(self) -> Reader:
        return Reader(self.folder.connect(read_only=True), "tests")

    def collect(self) -> int:
        return self.writer.submit(cleanup.Collect(self.registry)).result(30)

    def rows(self) -> list[outbox.Row]:
        with contextlib.closing(self.folder.connect(read_only=True)) as db:
            ids = [id for (id,) in db.execute("SELECT id FROM outbox").fetchall()]
            return outbox.rows_by_id(db, ids)

    def body(self, row: outbox.Row) -> dict[str, Any]:
        """What the row's POST says."""
        with contextlib.closing(self.folder.connect(read_only=True)) as db:
            events = payloads.read(db, row.frame_id, row.places)
        names = self.registry.topics
        body: dict[str, Any] = json.loads(
            bodies.enclose(
                [
                    bodies.entry_of(
                        bodies.event_fragment(events[place], names[events[place].topic].name),
                        numbers,
                        self.registry.fragments,
                    )
                    for place, numbers in row.matches()
                ]
            )
        )
        return body

    def told(self) -> list[tuple[str, str]]:
        """(subscription, event id) of everything that waits, in the order of rows; repeats stay visible."""
        return [
            (match["subscription"], entry["event"]["id"])
            for row in self.rows()
            for entry in self.body(row)["notifications"]
            for match in entry["matches"]
        ]

    def count(self, table: str) -> int:
        with contextlib.closing(self.folder.connect(read_only=True)) as db:
            (found,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
            return int(found)

    def _newest_batch(self) -> int:
        with contextlib.closing(self.folder.connect(read_only=True)) as db:
            (newest,) = db.execute("SELECT coalesce(max(key), 0) >> 24 FROM events").fetchone()
            return int(newest)
