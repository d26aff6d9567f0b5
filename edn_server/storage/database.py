"""Opens the data folder: a lock for one process, a format number, the tables, and the connections.

meta        epoch (number of starts), seq (number of store requests); restored, the last outbox row of the
            backup that this folder was made from; the clock
secrets     sealed: the identity key
topics, versions, intervals, rings, sink_settings, tallies
            see `versions`
logs        see `logs`
replays, pauses
            see `replays`
events      see `payloads`
outbox, batches, stream_marks
            see `outbox`. A row id is never reused, because the webhook-id is derived from it
steps, half_matches, candidates, monitors
            see `sequences.rows`
health, attempts, consents
            see `sink_state`
dead_letters, dead_names, names
            see `dead_letters`
kept, usage, drops
            see `usage`
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edn.errors import UnreadableSecret
from edn.runtime import disk as storage
from edn.runtime.disk import SqliteConnection
from edn.runtime.ownership import owned
from edn.runtime.process import CannotStart, copy_in, lock_folder, wrong_format
from edn.runtime.secret_box import SecretBox, open_folder_box
from edn_server.storage import secret_rows, usage
from edn_server.storage.interface import Connection, Identity, Reader, Result
from edn_server.storage.sequences import rows as sequences
from edn_server.storage.store import Store
from edn_server.storage.writer import Call, Job, SqliteJobs, Writer

#: number of the table format (`PRAGMA user_version`); other formats are refused
FORMAT = 3

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE secrets (name TEXT PRIMARY KEY, sealed BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    uid INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, columns TEXT NOT NULL,
    engine TEXT NOT NULL
);
CREATE TABLE versions (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, version INTEGER NOT NULL, owner TEXT NOT NULL,
    topic INTEGER NOT NULL, filter TEXT NOT NULL, address TEXT NOT NULL, recipient TEXT, expires INTEGER,
    log TEXT NOT NULL, incarnation INTEGER NOT NULL,
    width INTEGER NOT NULL, rects BLOB NOT NULL, over INTEGER, ring TEXT NOT NULL,
    moved INTEGER NOT NULL DEFAULT 0, settings TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX versions_living ON versions (id, version) WHERE over IS NULL;
CREATE INDEX versions_over ON versions (over) WHERE over IS NOT NULL;
CREATE INDEX versions_by_id ON versions (id);
CREATE TABLE intervals (
    number INTEGER NOT NULL, log TEXT NOT NULL, since INTEGER, until INTEGER, expires INTEGER,
    PRIMARY KEY (number, log)
) WITHOUT ROWID;
CREATE TABLE logs (
    log TEXT PRIMARY KEY, incarnation INTEGER NOT NULL, cursor INTEGER, joined INTEGER,
    retired INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE replays (
    number INTEGER NOT NULL, source TEXT NOT NULL CHECK (source IN ('log', 'server')), log TEXT NOT NULL,
    position INTEGER NOT NULL, kept INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (number, source, log)
) WITHOUT ROWID;
CREATE TABLE pauses (
    id TEXT NOT NULL, log TEXT NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (id, log)
) WITHOUT ROWID;
CREATE TABLE events (key INTEGER PRIMARY KEY, payloads BLOB NOT NULL);
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, address TEXT, subscription TEXT,
    state TEXT NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'buffered', 'waiting')),
    phase TEXT NOT NULL DEFAULT 'live' CHECK (phase IN ('history', 'live')),
    frame_id INTEGER, events INTEGER NOT NULL, composition BLOB, body BLOB,
    created INTEGER NOT NULL DEFAULT 0, doubt INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, due INTEGER NOT NULL DEFAULT 0,
    CHECK ((address IS NOT NULL) = (state = 'ready')),
    CHECK ((frame_id IS NULL) = (composition IS NULL) AND (frame_id IS NULL) = (body IS NOT NULL))
);
CREATE INDEX outbox_address ON outbox (address, id) WHERE address IS NOT NULL;
CREATE INDEX outbox_subscription ON outbox (subscription, state, phase, id) WHERE subscription IS NOT NULL;
CREATE INDEX outbox_streams ON outbox (created) WHERE subscription IS NOT NULL AND state = 'ready';
CREATE INDEX outbox_doubt ON outbox (address, id) WHERE doubt != 0;
CREATE INDEX outbox_kept_doubt ON outbox (subscription, id) WHERE address IS NULL AND doubt != 0;
CREATE INDEX outbox_asked ON outbox (doubt) WHERE doubt > 0;
CREATE INDEX outbox_aside ON outbox (address, id) WHERE attempts > 0;
CREATE INDEX outbox_frame ON outbox (frame_id) WHERE frame_id IS NOT NULL;
CREATE TABLE stream_marks (
    address TEXT PRIMARY KEY, dropped INTEGER NOT NULL DEFAULT 0, passed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE batches (id INTEGER PRIMARY KEY, members BLOB NOT NULL);
CREATE TABLE rings (
    id TEXT PRIMARY KEY, current BLOB NOT NULL, previous BLOB, until INTEGER NOT NULL,
    version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE sink_settings (id TEXT PRIMARY KEY, settings TEXT NOT NULL, credentials BLOB) WITHOUT ROWID;
CREATE TABLE health (address TEXT PRIMARY KEY, health BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE attempts (address TEXT PRIMARY KEY, newest INTEGER NOT NULL, attempts BLOB NOT NULL);
CREATE INDEX attempts_newest ON attempts (newest);
CREATE TABLE consents (url TEXT PRIMARY KEY, standing BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tallies (page INTEGER PRIMARY KEY, counts BLOB NOT NULL);
-- bodies are last, so that a list does not read them
CREATE TABLE dead_letters (id INTEGER PRIMARY KEY, address TEXT NOT NULL, died INTEGER NOT NULL,
    created INTEGER NOT NULL, attempts INTEGER NOT NULL, status INTEGER, reason TEXT NOT NULL,
    events INTEGER NOT NULL, named BLOB NOT NULL, body BLOB NOT NULL);
CREATE INDEX dead_letters_died ON dead_letters (died, id);
CREATE TABLE names (name INTEGER PRIMARY KEY, subscription TEXT NOT NULL UNIQUE);
CREATE TABLE dead_names (
    name INTEGER NOT NULL, died INTEGER NOT NULL, letter INTEGER NOT NULL, PRIMARY KEY (name, died, letter)
) WITHOUT ROWID;
"""


def saved_clock(db: Connection) -> str | None:
    """Returns the saved clock."""
    row = db.execute("SELECT value FROM meta WHERE name = 'clock'").fetchone()
    return str(row[0]) if row else None


def save_clock(db: Connection, text: str) -> None:
    db.execute("INSERT INTO meta VALUES ('clock', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1", (text,))


def restored(db: Connection) -> int:
    """Returns the last outbox row of the backup that this folder was made from; 0 without one."""
    row = db.execute("SELECT value FROM meta WHERE name = 'restored'").fetchone()
    return int(row[0]) if row else 0


@dataclass(slots=True)
class Reclaim(Job[bool]):
    """Returns free pages beyond a slack to the disk, one bounded step; its result: whether more are left."""

    bare = True

    slack: int

    def work(self, db: Connection) -> bool:
        assert isinstance(db, SqliteConnection)
        return storage.reclaim(db, self.slack)


@owned("any")
class SqliteStore(Store):
    """An open, locked data folder: one writer, any number of readers. Any thread may call it."""

    def __init__(
        self, path: Path, *, floor: int = 0, open_box: Callable[[], SecretBox] | None = None
    ) -> None:
        """Locks the folder and creates or checks its tables; raises `CannotStart`.

        `floor`: free bytes that a copy leaves on the disk. `open_box` is called once the folder is locked; by
        default it opens the folder's key file.
        """
        self.path = path
        self._floor = floor
        self._lock = lock_folder(path)
        try:
            self._box = open_box() if open_box is not None else open_folder_box(path)
            self.identity = self._open()
        except sqlite3.Error as error:
            os.close(self._lock)
            if storage.is_full(error):
                raise  # the caller retries when the disk has room
            raise CannotStart(f"the database in {path} cannot be opened: {error}") from None
        except (CannotStart, UnreadableSecret, OSError):
            os.close(self._lock)
            raise

    def _open(self) -> Identity:
        with contextlib.closing(self.connect()) as db:
            storage.recover(db)
            db.execute("BEGIN IMMEDIATE")
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone():
                for statement in (
                    *_TABLES.split(";"),
                    *sequences.TABLES.split(";"),
                    *usage.TABLES,
                    *usage.TRIGGERS,
                ):
                    db.execute(statement)
                db.executemany("INSERT INTO meta VALUES (?, ?)", [("epoch", 0), ("seq", 0)])
                secret_rows.create_key(db)
                db.execute(f"PRAGMA user_version = {FORMAT}")
            (found,) = db.execute("PRAGMA user_version").fetchone()
            if found != FORMAT:
                db.execute("ROLLBACK")
                raise CannotStart(wrong_format(f"the data folder {self.path}", found, FORMAT))
            db.execute("UPDATE meta SET value = value + 1 WHERE name = 'epoch'")
            (epoch,) = db.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
            secret_rows.check(db, f"the data folder {self.path}")
            key = secret_rows.key(db)
            db.execute("COMMIT")
            return Identity(key, int(epoch))

    def connect(self, *, read_only: bool = False) -> SqliteConnection:
        """Opens a connection in autocommit mode, for one thread at a time; the caller closes it."""
        db = storage.connect(self.path / "server.db", read_only=read_only)
        db.execute("PRAGMA cache_size = -32768")
        db.box = self._box
        return db

    @functools.cached_property
    def _db(self) -> SqliteConnection:
        """The writer's connection."""
        return self.connect()

    def load(self, function: Callable[[Connection], Result]) -> Result:
        assert self._writer is None
        return function(self._db)

    def start(self, on_fatal: Callable[[BaseException], None], on_full: Callable[[], None]) -> None:
        self._writer = Writer(lambda writer: SqliteJobs(writer, self._db), on_fatal, on_full=on_full)

    def reader(self, name: str) -> Reader:
        return Reader(self.connect(read_only=True), name)

    async def shrink_memory(self) -> None:
        # The page cache must shrink before the process can release memory.
        await self.committed(Call(lambda db: db.execute("PRAGMA shrink_memory").fetchall()))

    async def backup(self) -> Path:
        target = copy_in(self.path)
        await asyncio.to_thread(storage.copy, self.path / "server.db", target, watermark=self._floor)
        return target

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        os.close(self._lock)
