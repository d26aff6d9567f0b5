"""The tables of a data folder, and the number of their format.

There are no migrations: a folder of any other format is refused.
"""

from __future__ import annotations

import sqlite3

from edn.errors import EdnError
from edn.runtime.process import wrong_format

#: raised with every change of the tables below
FORMAT = 1

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- keyed by the last offset, so that "everything after a cursor" is one range
CREATE TABLE records (
    last INTEGER PRIMARY KEY, count INTEGER NOT NULL, time INTEGER NOT NULL,
    topic INTEGER, server TEXT, payload BLOB NOT NULL,
    -- when the last of its events ceases to be available to later subscribers, null if none ever was
    expires INTEGER);
-- what a new subscription is yet to be told of the events that were available when it began
CREATE TABLE replays (
    subscription TEXT NOT NULL, version INTEGER NOT NULL, server TEXT NOT NULL, topic INTEGER NOT NULL,
    filter TEXT, upto INTEGER NOT NULL, time INTEGER NOT NULL, since INTEGER,
    -- null: what was available, otherwise all that the log took after this offset, in place of a lost server
    after INTEGER,
    PRIMARY KEY (subscription, version)) WITHOUT ROWID;
-- subscriptions that have moved and whose former server may still have something to deliver: `keeping` if it
-- holds what it kept for a paused one
CREATE TABLE moves (
    subscription TEXT NOT NULL, version INTEGER NOT NULL, source TEXT NOT NULL, destination TEXT NOT NULL,
    keeping INTEGER NOT NULL, PRIMARY KEY (subscription, version)) WITHOUT ROWID;
CREATE INDEX moves_by_source ON moves (source);
-- repartitions, and of those that are not over where what is to be moved shall go
CREATE TABLE repartitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, state TEXT NOT NULL, server TEXT,
    created INTEGER NOT NULL, began INTEGER, ended INTEGER, rate REAL NOT NULL,
    total INTEGER NOT NULL DEFAULT 0, moved INTEGER NOT NULL DEFAULT 0, skipped INTEGER NOT NULL DEFAULT 0,
    hit_ratio REAL, expected_hit_ratio REAL);
CREATE TABLE assignments (
    repartition INTEGER NOT NULL, subscription TEXT NOT NULL, server TEXT NOT NULL,
    PRIMARY KEY (repartition, subscription)) WITHOUT ROWID;
-- up to where servers have read, as last noted, and those that are being emptied or are lost, with that
CREATE TABLE cursors (server TEXT PRIMARY KEY, cursor INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE leaving (
    server TEXT PRIMARY KEY, state TEXT NOT NULL, cursor INTEGER) WITHOUT ROWID;
-- only ids that publishers chose: an id that we made cannot come twice
CREATE TABLE event_ids (
    topic INTEGER NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL, time INTEGER NOT NULL,
    PRIMARY KEY (topic, id)) WITHOUT ROWID;
CREATE INDEX event_ids_by_time ON event_ids (time);
CREATE TABLE topics (
    uid INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, columns TEXT NOT NULL, attributes TEXT NOT NULL,
    engine TEXT NOT NULL, created INTEGER NOT NULL,
    -- seconds, Inf for ever: how long its events stay available to later subscribers, if they do not say
    availability REAL NOT NULL DEFAULT 0,
    -- whether its engine was chosen for this very name, and not inherited
    chosen INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, name));
-- what operators have bound to names, of topics or subtrees: servers (JSON) and matcher, null for none
CREATE TABLE bindings (
    name TEXT PRIMARY KEY, servers TEXT, engine TEXT, created INTEGER NOT NULL) WITHOUT ROWID;
-- those to a subtree have its path, and no topic (0) and no server (''): these are their members'
CREATE TABLE subscriptions (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, version INTEGER NOT NULL,
    owner TEXT NOT NULL, topic INTEGER NOT NULL, filter TEXT, attributes TEXT NOT NULL, url TEXT NOT NULL,
    recipient TEXT, expires INTEGER, server TEXT NOT NULL, created INTEGER NOT NULL, location TEXT,
    ring TEXT NOT NULL DEFAULT '', paused INTEGER NOT NULL DEFAULT 0, subtree TEXT,
    predicates INTEGER NOT NULL DEFAULT 0);
CREATE INDEX subscriptions_by_topic ON subscriptions (topic, serial);
CREATE INDEX subscriptions_by_owner ON subscriptions (owner, serial);
CREATE INDEX subscriptions_by_server ON subscriptions (server);
CREATE INDEX subscriptions_by_expiry ON subscriptions (expires) WHERE expires IS NOT NULL;
-- the secrets that notifications are signed with: those that subscribers gave, by fingerprint, or ours
CREATE TABLE rings (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, owner TEXT NOT NULL, url TEXT NOT NULL, given TEXT NOT NULL,
    current TEXT NOT NULL, previous TEXT, until INTEGER NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX rings_by_url ON rings (tenant, owner, url, given);
-- what other dispatchers must learn of, in the order in which it changed (see `dispatcher.store.change_feed`)
CREATE TABLE changes (
    touched INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, gone INTEGER, version INTEGER, server TEXT, epoch INTEGER, seq INTEGER,
    since INTEGER, renewed INTEGER NOT NULL DEFAULT 0, former TEXT,
    -- of a subscription that has ended and wanted to hear what was available: topic and filter (JSON)
    wanted TEXT, UNIQUE (kind, name));
CREATE INDEX changes_gone ON changes (gone) WHERE gone IS NOT NULL;
-- up to which place the changes of another dispatcher's log are merged here
CREATE TABLE peers (log TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
-- API keys, by digest only
CREATE TABLE keys (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL, name TEXT NOT NULL, tenant TEXT NOT NULL,
    scopes TEXT NOT NULL, quota TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER) WITHOUT ROWID;
CREATE TABLE servers (
    id TEXT PRIMARY KEY, url TEXT NOT NULL, key TEXT NOT NULL, epoch INTEGER NOT NULL,
    registered INTEGER NOT NULL) WITHOUT ROWID;
-- bytes of retained events
CREATE TABLE retained (tenant TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX records_passing ON records (last) WHERE expires IS NULL;
CREATE INDEX records_by_expiry ON records (expires) WHERE expires IS NOT NULL;
CREATE INDEX records_retained ON records (topic, last) WHERE expires IS NOT NULL;
CREATE INDEX subscriptions_by_ring ON subscriptions (ring) WHERE ring != '';
CREATE INDEX subscriptions_by_subtree ON subscriptions (subtree) WHERE subtree IS NOT NULL;
"""


def _counting(row: str, sign: str) -> str:
    """Count a record. Its topic is there: deleting a topic ends the availability of its events first."""
    return (
        f"INSERT INTO retained SELECT tenant, {sign}length({row}.payload) FROM topics WHERE uid = {row}.topic"
        " ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;"
    )


#: count `retained` in the transaction that writes or deletes a record
_TRIGGERS = (
    "CREATE TRIGGER retained_more AFTER INSERT ON records WHEN NEW.expires IS NOT NULL BEGIN"
    f" {_counting('NEW', '')} END",
    "CREATE TRIGGER retained_less AFTER DELETE ON records WHEN OLD.expires IS NOT NULL BEGIN"
    f" {_counting('OLD', '-')} END",
    "CREATE TRIGGER retained_ended AFTER UPDATE OF expires ON records"
    f" WHEN OLD.expires IS NOT NULL AND NEW.expires IS NULL BEGIN {_counting('OLD', '-')} END",
)


class WrongFormat(EdnError):
    """The data folder was written by an older or a newer version of the program."""


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables in an empty file; raises `WrongFormat` for a file of another format."""
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone() is None:
        for statement in (*_TABLES.split(";"), *_TRIGGERS):
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES ('format', ?)", (FORMAT,))
        return
    row = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    found = None if row is None else row[0]
    if found != FORMAT:
        raise WrongFormat(wrong_format(path, found, FORMAT))
