"""The data folder: a lock that keeps it to one process, a format version, and the tables.

meta        format, identity key, epoch (the durable count of starts), seq (the count of stores); restored,
            the last outbox row of the backup that this folder was made from
topics      what filters were bound with; columns are append-only
versions    each version of each hosted subscription, with the rectangles that it was bound to. `over` is
            empty while any log may still match it; then it is the last outbox row that can name it, and
            the version goes when no row up to that one waits at its address (see `outbox.collect`);
            `moved` tells that its subscription goes on elsewhere
intervals   where each log activated and ended a version: it matches the offsets (since, until], and until
            when it lives there if that log has renewed it
logs        the cursor of each log, its newest incarnation, where this server joined it, and whose it is
replays     versions whose past is still coming, from which log (or which other server), up to where it is
            here; `kept` says what is to become of what another server kept (see `buffered`)
pauses      what each log says is paused, and which revision of the subscription that was
told        whom an event was told to whose id its publisher chose: another log may bring it once more
events      the payload of each matched event, once; its key is batch × 2^24 + its place in the batch
outbox      one row is one POST: its address, and a blob that says which events and versions it tells of, or,
            of batch 0, the body itself. Its id is never used twice, because the webhook-id is made of it
parcels     rows that are posted together, under the id of the first of them
rings       the secrets that notifications to an address are signed with
health      addresses that are failing, disabled or slow; one that is not here is healthy
attempts    the last attempts of each address
consents    sinks of CloudEvents that have consented, or may later, by URL
tallies     what became of each version's notifications, as pages of counters by number
dead_letters, dead_names, names
            POSTs that were given up, with what they would have said, findable by whom they name
kept, usage, drops
            what tenants occupy beyond what is being delivered, and lost at a limit (see `usage`)
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from edn import storage
from edn.process import CannotStart, lock_folder, wrong_format
from edn_server.storage import usage

#: raised with every change of the tables below; a folder of any other format is refused
FORMAT = 7
#: events of one batch have keys batch << BATCH_BITS and up
BATCH_BITS = 24

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE topics (
    uid INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, columns TEXT NOT NULL,
    engine TEXT NOT NULL
);
CREATE TABLE versions (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, version INTEGER NOT NULL, owner TEXT NOT NULL,
    topic INTEGER NOT NULL, filter TEXT NOT NULL, address TEXT NOT NULL, recipient TEXT, expires INTEGER,
    log TEXT NOT NULL, incarnation INTEGER NOT NULL,
    width INTEGER NOT NULL, rects BLOB NOT NULL, over INTEGER, ring TEXT NOT NULL,
    moved INTEGER NOT NULL DEFAULT 0
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
    retired INTEGER NOT NULL DEFAULT 0, url TEXT
) WITHOUT ROWID;
CREATE TABLE replays (
    number INTEGER NOT NULL, log TEXT NOT NULL, position INTEGER NOT NULL, kept INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (number, log)
) WITHOUT ROWID;
CREATE TABLE pauses (
    id TEXT NOT NULL, log TEXT NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (id, log)
) WITHOUT ROWID;
CREATE TABLE told (
    topic INTEGER NOT NULL, id TEXT NOT NULL, time INTEGER NOT NULL, subscriptions BLOB NOT NULL,
    PRIMARY KEY (topic, id)
) WITHOUT ROWID;
CREATE INDEX told_time ON told (time);
CREATE TABLE events (key INTEGER PRIMARY KEY, topic INTEGER NOT NULL, id TEXT NOT NULL,
    stamp INTEGER NOT NULL, body BLOB NOT NULL, trace TEXT NOT NULL DEFAULT '');
CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, address TEXT NOT NULL, batch INTEGER NOT NULL,
    events INTEGER NOT NULL, composition BLOB NOT NULL, created INTEGER NOT NULL DEFAULT 0,
    doubt INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0);
CREATE INDEX outbox_address ON outbox (address, id);
CREATE INDEX outbox_doubt ON outbox (address, id) WHERE doubt != 0;
CREATE INDEX outbox_asked ON outbox (doubt) WHERE doubt > 0;
CREATE INDEX outbox_batch ON outbox (batch);
CREATE TABLE parcels (id INTEGER PRIMARY KEY, members BLOB NOT NULL);
CREATE TABLE rings (
    id TEXT PRIMARY KEY, current TEXT NOT NULL, previous TEXT, until INTEGER NOT NULL,
    version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE health (address TEXT PRIMARY KEY, health BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE attempts (address TEXT PRIMARY KEY, newest INTEGER NOT NULL, attempts BLOB NOT NULL);
CREATE INDEX attempts_newest ON attempts (newest);
CREATE TABLE consents (url TEXT PRIMARY KEY, standing BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tallies (page INTEGER PRIMARY KEY, counts BLOB NOT NULL);
-- bodies stand last, so that a list does not read them
CREATE TABLE dead_letters (id INTEGER PRIMARY KEY, address TEXT NOT NULL, died INTEGER NOT NULL,
    created INTEGER NOT NULL, attempts INTEGER NOT NULL, status INTEGER, reason TEXT NOT NULL,
    events INTEGER NOT NULL, named BLOB NOT NULL, body BLOB NOT NULL);
CREATE INDEX dead_letters_died ON dead_letters (died, id);
CREATE TABLE names (name INTEGER PRIMARY KEY, subscription TEXT NOT NULL UNIQUE);
CREATE TABLE dead_names (
    name INTEGER NOT NULL, died INTEGER NOT NULL, letter INTEGER NOT NULL, PRIMARY KEY (name, died, letter)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Identity:
    #: secret that tells this folder's server from any other of the same id
    key: str
    #: how often this folder was opened
    epoch: int


class Folder:
    """An open data folder. `connect` gives further connections; closing it gives the lock back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = lock_folder(path)
        try:
            self.identity = self._open()
        except sqlite3.Error as error:
            os.close(self._lock)
            if storage.is_full(error):
                raise  # there may be room later
            raise CannotStart(f"the database in {path} cannot be opened: {error}") from None
        except CannotStart:
            os.close(self._lock)
            raise

    def connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        """A connection in autocommit mode; whoever opens it closes it. One thread at a time."""
        db = storage.connect(self.path / "server.db", read_only=read_only)
        db.execute("PRAGMA cache_size = -32768")
        return db

    def copy(self, target: Path, watermark: int) -> None:
        """Write what is there at one moment to another file, whole and compact. Any thread."""
        storage.copy(self.path / "server.db", target, watermark=watermark)

    def close(self) -> None:
        os.close(self._lock)

    def _open(self) -> Identity:
        with contextlib.closing(self.connect()) as db:
            storage.recover(db)
            db.execute("BEGIN IMMEDIATE")
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone():
                for statement in (*_TABLES.split(";"), *usage.TABLES, *usage.TRIGGERS):
                    db.execute(statement)
                values = [("format", FORMAT), ("key", secrets.token_hex(16)), ("epoch", 0), ("seq", 0)]
                db.executemany("INSERT INTO meta VALUES (?, ?)", values)
            meta = dict(db.execute("SELECT name, value FROM meta").fetchall())
            if meta["format"] != FORMAT:
                db.execute("ROLLBACK")
                raise CannotStart(wrong_format(f"the data folder {self.path}", meta["format"], FORMAT))
            db.execute("UPDATE meta SET value = value + 1 WHERE name = 'epoch'")
            db.execute("COMMIT")
            return Identity(str(meta["key"]), int(meta["epoch"]) + 1)
