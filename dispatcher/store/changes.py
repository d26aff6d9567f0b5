"""Changes of other dispatchers, as this one learns of them: what is new in its log and in the directory.

Every transaction that changes the shared directory has a number, the **revision**. Its changes are rows of
`changes`, and its control records are in every open log. A dispatcher that finds a newer revision than it
knows reads the gap: the new records of its log, and the present state of everything that has changed.
Applying a gap twice does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dispatcher.store import api_keys, directory, replays, servers, topic_rows
from dispatcher.store.api_keys import Key
from dispatcher.store.directory import Subscription
from dispatcher.store.interface import Change, Connection, Kind, read_int
from dispatcher.store.records import ControlRecord, Record
from dispatcher.store.replays import Replay
from dispatcher.store.servers import Leaving
from dispatcher.store.topic_rows import Binding, Topic

#: changes that are kept, for dispatchers that lag
KEPT = 200_000
#: changes after which older ones are deleted
STEP = 1000

#: id, URL, hash of the key, epoch, time of registration
ServerRow = tuple[str, str, str, int, int]


class TooFarBehind(Exception):
    """Changes that the dispatcher has not read are deleted: it must start again."""


@dataclass(slots=True)
class Gap:
    """What has changed since a revision."""

    revision: int
    #: last offset of the log
    head: int = 0
    records: list[Record] = field(default_factory=list)
    #: replays of this log that other dispatchers began
    replays: list[Replay] = field(default_factory=list)
    #: uid → topic, None if it was deleted
    topics: dict[int, Topic | None] = field(default_factory=dict)
    #: new versions, each with epoch and number of its store request
    versions: list[tuple[Subscription, int, int]] = field(default_factory=list)
    #: server → how many more subscriptions it has
    loads: dict[str, int] = field(default_factory=dict)
    #: id → server, None if it was removed; and the servers that are drained or lost
    servers: dict[str, ServerRow | None] = field(default_factory=dict)
    leaving: dict[str, Leaving] = field(default_factory=dict)
    #: all keys and all bindings, if some have changed
    keys: dict[str, Key] | None = None
    bindings: list[Binding] | None = None
    #: whether a repartition began or ended
    repartitions: bool = False
    #: uids of topics whose advertisements have changed
    advertised: set[int] = field(default_factory=set)


def write(connection: Connection, revision: int, changes: list[Change]) -> None:
    connection.executemany(
        "INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?)", [(revision, *change) for change in changes]
    )
    if not revision % STEP:
        connection.execute("DELETE FROM changes WHERE revision <= ?", (revision - KEPT,))
        connection.execute("UPDATE directory SET deleted = ?", (max(0, revision - KEPT),))


def read(connection: Connection, after: int, revision: int, log_head: int, records: list[Record]) -> Gap:
    """Return what has changed after a revision; `records`: the new ones of the log."""
    deleted = read_int(connection, "SELECT deleted FROM directory")
    if after < deleted:
        raise TooFarBehind(f"changes {after + 1} to {deleted} are deleted")
    gap = Gap(revision, log_head, records)
    rows = connection.execute(
        "SELECT kind, name, server, more, epoch, seq FROM changes WHERE revision > ?", (after,)
    ).fetchall()
    for change in [Change(Kind(row[0]), *row[1:]) for row in rows]:
        _add(connection, gap, change)
    if gap.servers:
        gap.leaving = dict(servers.leaving(connection))
        gap.servers |= {row[0]: row for row in servers.all_servers(connection) if row[0] in gap.servers}
    for record in records:
        if isinstance(record, ControlRecord):
            found = [replays.find(connection, *named) for named in record.control.replays]
            gap.replays += [replay for replay in found if replay is not None]
    return gap


def _add(connection: Connection, gap: Gap, change: Change) -> None:
    match change.kind:
        case Kind.SERVER:
            gap.servers[change.name] = None
        case Kind.TOPIC:
            gap.topics[int(change.name)] = topic_rows.find_by_uid(connection, int(change.name))
        case Kind.SUBSCRIPTION:
            if change.more:
                gap.loads[change.server] = gap.loads.get(change.server, 0) + change.more
            if change.epoch is not None and change.seq is not None:
                found = directory.find(connection, change.name)
                if found is not None:
                    gap.versions.append((found, change.epoch, change.seq))
        case Kind.KEY:
            if gap.keys is None:
                gap.keys = api_keys.all_keys(connection)
        case Kind.BINDING:
            if gap.bindings is None:
                gap.bindings = topic_rows.all_bindings(connection)
        case Kind.REPARTITION:
            gap.repartitions = True
        case Kind.ADVERTISEMENT:
            gap.advertised.add(int(change.name))


def described(gap: Gap) -> dict[str, Any]:
    """Return the extent of a gap, for the log of the process."""
    return {"revision": gap.revision, "records": len(gap.records), "versions": len(gap.versions)}
