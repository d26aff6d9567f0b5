"""The tables of a data folder, and the number of their format.

There are no migrations: a data folder of another format is refused.
"""

from __future__ import annotations

import sqlite3

from edn.errors import EdnError
from edn.runtime.process import wrong_format

#: must rise with every change of the tables
FORMAT = 4

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- keyed by the last offset, so that the records after a cursor are one range
CREATE TABLE records (
    last INTEGER PRIMARY KEY, count INTEGER NOT NULL, time INTEGER NOT NULL,
    topic INTEGER, server TEXT, payload BLOB NOT NULL,
    -- end of the longest availability of its events, null if no event is retained
    expires INTEGER);
-- unfinished replays
CREATE TABLE replays (
    subscription TEXT NOT NULL, version INTEGER NOT NULL, server TEXT NOT NULL, topic INTEGER NOT NULL,
    filter TEXT, upto INTEGER NOT NULL, time INTEGER NOT NULL, since INTEGER,
    -- cursor of a lost server, null if the replay does not replace one
    after INTEGER,
    PRIMARY KEY (subscription, version)) WITHOUT ROWID;
-- unfinished migrations, `keeping` if the old server has buffered notifications to hand over
CREATE TABLE moves (
    subscription TEXT NOT NULL, version INTEGER NOT NULL, source TEXT NOT NULL, destination TEXT NOT NULL,
    keeping INTEGER NOT NULL, PRIMARY KEY (subscription, version)) WITHOUT ROWID;
CREATE INDEX moves_by_source ON moves (source);
-- repartitions, and the assignments of those that are open or running
CREATE TABLE repartitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, state TEXT NOT NULL, server TEXT,
    created INTEGER NOT NULL, began INTEGER, ended INTEGER, rate REAL NOT NULL,
    total INTEGER NOT NULL DEFAULT 0, moved INTEGER NOT NULL DEFAULT 0, skipped INTEGER NOT NULL DEFAULT 0,
    hit_ratio REAL, expected_hit_ratio REAL);
CREATE TABLE assignments (
    repartition INTEGER NOT NULL, subscription TEXT NOT NULL, server TEXT NOT NULL,
    PRIMARY KEY (repartition, subscription)) WITHOUT ROWID;
-- cursors of servers, as last stored, and servers that are drained or lost, with their cursors then
CREATE TABLE cursors (server TEXT PRIMARY KEY, cursor INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE leaving (
    server TEXT PRIMARY KEY, state TEXT NOT NULL, cursor INTEGER) WITHOUT ROWID;
-- ids that publishers set (generated ids are unique)
CREATE TABLE event_ids (
    topic INTEGER NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL, time INTEGER NOT NULL,
    PRIMARY KEY (topic, id)) WITHOUT ROWID;
CREATE INDEX event_ids_by_time ON event_ids (time);
CREATE TABLE topics (
    uid INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, columns TEXT NOT NULL, attributes TEXT NOT NULL,
    engine TEXT NOT NULL, created INTEGER NOT NULL,
    -- default availability of its events in seconds, Inf for ever
    availability REAL NOT NULL DEFAULT 0,
    -- whether the engine was set for this topic, not inherited from a binding
    chosen INTEGER NOT NULL DEFAULT 0,
    -- whether its events have no fields but the attributes
    closed INTEGER NOT NULL DEFAULT 0,
    -- what happens to unadvertised events, and a number that rises with every change of its advertisements
    advertising TEXT NOT NULL DEFAULT 'off', advertised INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, name));
-- what publishers will send (JSON)
CREATE TABLE advertisements (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, version INTEGER NOT NULL,
    topic INTEGER NOT NULL, publisher TEXT NOT NULL, advertisement TEXT NOT NULL, expires INTEGER,
    created INTEGER NOT NULL);
CREATE INDEX advertisements_by_topic ON advertisements (topic, publisher, serial);
CREATE INDEX advertisements_by_expiry ON advertisements (expires) WHERE expires IS NOT NULL;
-- bindings of names of topics and subtrees: servers (JSON) and engine, null for none
CREATE TABLE bindings (
    name TEXT PRIMARY KEY, servers TEXT, engine TEXT, created INTEGER NOT NULL) WITHOUT ROWID;
-- a subtree subscription has a subtree, topic 0 and server '', and its members have a topic and a server
CREATE TABLE subscriptions (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, version INTEGER NOT NULL,
    owner TEXT NOT NULL, topic INTEGER NOT NULL, filter TEXT, attributes TEXT NOT NULL, url TEXT NOT NULL,
    recipient TEXT, expires INTEGER, server TEXT NOT NULL, created INTEGER NOT NULL, location TEXT,
    ring TEXT NOT NULL DEFAULT '', paused INTEGER NOT NULL DEFAULT 0, subtree TEXT,
    predicates INTEGER NOT NULL DEFAULT 0,
    -- whether the expiry differs from the one in the store request of the version
    renewed INTEGER NOT NULL DEFAULT 0,
    settings TEXT NOT NULL DEFAULT '');
-- topics of sequences besides that of the first step, with the attributes that they use
CREATE TABLE sequence_topics (
    subscription TEXT NOT NULL, topic INTEGER NOT NULL, attributes TEXT NOT NULL,
    PRIMARY KEY (subscription, topic)) WITHOUT ROWID;
CREATE INDEX sequence_topics_by_topic ON sequence_topics (topic);
-- credentials of sinks, sealed, by the id of the settings
CREATE TABLE credentials (id TEXT PRIMARY KEY, sealed BLOB NOT NULL, created INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX subscriptions_with_settings ON subscriptions (serial) WHERE settings != '';
CREATE INDEX subscriptions_by_topic ON subscriptions (topic, serial);
CREATE INDEX subscriptions_by_owner ON subscriptions (owner, serial);
CREATE INDEX subscriptions_by_server ON subscriptions (server);
CREATE INDEX subscriptions_by_expiry ON subscriptions (expires) WHERE expires IS NOT NULL;
-- sealed signing keys, `given`: fingerprint of a secret that the subscriber gave, empty if it was generated
CREATE TABLE rings (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, owner TEXT NOT NULL, url TEXT NOT NULL, given TEXT NOT NULL,
    current BLOB NOT NULL, previous BLOB, until INTEGER NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX rings_by_url ON rings (tenant, owner, url, given);
-- API keys, by digest only
CREATE TABLE keys (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL, name TEXT NOT NULL, tenant TEXT NOT NULL,
    scopes TEXT NOT NULL, quota TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER) WITHOUT ROWID;
-- sources of events with their URL, sealed, and without its password, and the dispatcher that runs it
CREATE TABLE sources (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, topic TEXT NOT NULL, url BLOB NOT NULL, shown TEXT NOT NULL,
    consumer TEXT NOT NULL, api_key TEXT NOT NULL, owner TEXT NOT NULL, quota TEXT NOT NULL,
    created INTEGER NOT NULL, runner TEXT NOT NULL DEFAULT '',
    until INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE source_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, message TEXT, reason TEXT NOT NULL,
    body BLOB NOT NULL, size INTEGER NOT NULL, time INTEGER NOT NULL);
CREATE INDEX source_letters_by_source ON source_letters (source, id);
CREATE TABLE servers (
    id TEXT PRIMARY KEY, url TEXT NOT NULL, key TEXT NOT NULL, epoch INTEGER NOT NULL,
    registered INTEGER NOT NULL) WITHOUT ROWID;
-- bytes of retained events
CREATE TABLE retained (tenant TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIEW retained_by_all AS SELECT tenant, bytes FROM retained;
CREATE VIEW records_of_all AS SELECT topic, expires, time FROM records;
CREATE INDEX records_passing ON records (last) WHERE expires IS NULL;
CREATE INDEX records_by_expiry ON records (expires) WHERE expires IS NOT NULL;
CREATE INDEX records_retained ON records (topic, last) WHERE expires IS NOT NULL;
CREATE INDEX subscriptions_by_ring ON subscriptions (ring) WHERE ring != '';
CREATE INDEX subscriptions_by_subtree ON subscriptions (subtree) WHERE subtree IS NOT NULL;
"""


def _counting(row: str, sign: str) -> str:
    """Return SQL that counts a record. Deleting a topic first ends the availability of its events."""
    return (
        f"INSERT INTO retained SELECT tenant, {sign}length({row}.payload) FROM topics WHERE uid = {row}.topic"
        " ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;"
    )


#: they update `retained` in the transaction that writes or deletes a record
_TRIGGERS = (
    "CREATE TRIGGER retained_more AFTER INSERT ON records WHEN NEW.expires IS NOT NULL BEGIN"
    f" {_counting('NEW', '')} END",
    "CREATE TRIGGER retained_less AFTER DELETE ON records WHEN OLD.expires IS NOT NULL BEGIN"
    f" {_counting('OLD', '-')} END",
    "CREATE TRIGGER retained_ended AFTER UPDATE OF expires ON records"
    f" WHEN OLD.expires IS NOT NULL AND NEW.expires IS NULL BEGIN {_counting('OLD', '-')} END",
)


class WrongFormat(EdnError):
    """The data folder was written by an older or newer version of the program."""


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables in an empty file; raises `WrongFormat` for another format."""
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone() is None:
        for statement in (*_TABLES.split(";"), *_TRIGGERS):
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES ('format', ?)", (FORMAT,))
        return
    row = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    found = None if row is None else row[0]
    if found != FORMAT:
        raise WrongFormat(wrong_format(path, found, FORMAT))
