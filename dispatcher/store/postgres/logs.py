"""The logs of all dispatchers: opening, locking, publishing changes to all of them, retiring.

A log that is opened while the network has subscriptions begins with their activations, so that servers match
its events. The logs that exist get a *follow* record for each server in the same transaction: a server that
reads it keeps subscriptions until the new log has ended them, too.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dispatcher.store import changes
from dispatcher.store.event_log import LogRow
from dispatcher.store.interface import Change, Connection, Stream, Transaction, first_column, read_int
from dispatcher.store.postgres.schema import MIGRATIONS
from edn import protocol
from edn.runtime.postgres.database import Database, Session, locked
from edn.runtime.postgres.lease import LEASE_SECONDS
from edn.runtime.postgres.listener import end_stalled
from edn.runtime.postgres.schema import Scope, migrate
from edn.runtime.postgres.writer import Link
from edn.runtime.secret_box import SecretBox

#: how long an opening dispatcher waits for the directory before it ends stalled transactions
_LOCK = "1s"
#: versions per control record of a new log
_BATCH = 5000


class _Adopted(Exception):
    """Another dispatcher has taken over the log while this one waited for it."""


def channel(database: Database) -> str:
    """Return the name of the channel on which changes are announced."""
    return f"{database.schema}_changes"


def living(connection: Connection) -> list[LogRow]:
    """Return the logs that are not retired, in the order of their ids."""
    rows = connection.execute(
        "SELECT l.log, l.name, l.url, l.state,"
        " greatest(extract(epoch FROM e.until - clock_timestamp())::float8, -1e9), e.fence, e.commits,"
        " e.seconds"
        " FROM logs l JOIN leases e ON e.name = 'log:' || l.log WHERE l.state != 'retired' ORDER BY l.log"
    )
    return [LogRow(*row) for row in rows]


# -- changes --------------------------------------------------------------------------------------------


def lock(connection: Connection, own: str) -> tuple[list[Stream], int]:
    """Lock the directory and all open logs; return the other logs, and the number of the last change."""
    revision = read_int(connection, "SELECT revision FROM directory FOR UPDATE")
    connection.execute(
        "SELECT 1 FROM leases e JOIN logs l ON e.name = 'log:' || l.log WHERE l.state != 'retired'"
        " ORDER BY e.name FOR UPDATE OF e"
    )
    # Read by another statement: the one that waited for the locks sees the past.
    rows = connection.execute(
        "SELECT l.log, e.fence, coalesce((SELECT r.last FROM log_records r WHERE r.log = l.log"
        " ORDER BY r.last DESC LIMIT 1), 0) FROM logs l JOIN leases e ON e.name = 'log:' || l.log"
        " WHERE l.state != 'retired' AND l.log != ?",
        (own,),
    ).fetchall()
    return [Stream(*row) for row in rows], revision


def learned(connection: Connection, log: str, revision: int) -> None:
    """Note that the owner of a log knows a change."""
    connection.execute("UPDATE leases SET known = ? WHERE name = ?", (revision, f"log:{log}"))


def unaware(connection: Connection, revision: int) -> int:
    """Count the dispatchers that are alive and do not know a change."""
    return read_int(
        connection,
        "SELECT count(*) FROM leases e JOIN logs l ON e.name = 'log:' || l.log"
        " WHERE l.state = 'open' AND e.until > clock_timestamp() AND e.known < ?",
        revision,
    )


def publish(
    connection: Connection, revision: int, streams: Sequence[Stream], changed: Sequence[Change]
) -> None:
    """Number a change that is in all logs, and announce it."""
    connection.execute("SELECT pg_notify(current_schema() || '_changes', CAST(? AS TEXT))", (str(revision),))
    connection.execute("UPDATE directory SET revision = ?", (revision,))
    connection.execute(
        f"UPDATE leases SET revision = ? WHERE {connection.any_of('name')}",
        (revision, connection.array([f"log:{stream.log}" for stream in streams])),
    )
    learned(connection, streams[0].log, revision)
    changes.write(connection, revision, list(changed))


# -- opening --------------------------------------------------------------------------------------------


def open_link(
    database: Database, name: str, now: int, on_wait: Callable[[float], None], box: SecretBox
) -> Link:
    """Acquire the log of a dispatcher; create one if it has none, or if another dispatcher drains it."""
    while True:
        with database.refusing(), contextlib.closing(database.connect("edn: opening")) as session:
            migrate(session, database, "dispatcher", MIGRATIONS)
            while (log := locked(lambda: _find(session, name, now))) is None:
                end_stalled(session)  # its owner may have stopped while it held the lock

        def check(session: Session, log: str = log) -> None:
            row = session.execute("SELECT state FROM logs WHERE log = %s", (log,)).fetchone()
            if row is None or row[0] != "open":
                raise _Adopted

        with contextlib.suppress(_Adopted):
            return Link(
                database,
                Scope("log", log),
                "dispatcher",
                MIGRATIONS,
                box=box,
                on_wait=on_wait,
                check=check,
            )


def take(transaction: Transaction, state: str, url: str | None, revision: int) -> None:
    """Set the state of the own log, whose owner knows a change; without a URL the known one stays."""
    learned(transaction.connection, transaction.log, revision)
    transaction.connection.execute(
        "UPDATE logs SET state = ?, url = coalesce(CAST(? AS TEXT), url) WHERE log = ?",
        (state, url, transaction.log),
    )


def _find(session: Session, name: str, now: int) -> str:
    """Return the log that a dispatcher should open; create it if there is none."""
    with session.transaction():
        session.execute(f"SET LOCAL lock_timeout = '{_LOCK}'")
        session.execute("SELECT revision FROM directory FOR UPDATE")
        row = session.execute(
            "SELECT l.log FROM logs l JOIN leases e ON e.name = 'log:' || l.log WHERE l.name = %s"
            " AND (l.state = 'open' OR l.state = 'draining'"
            " AND (e.owner = '' OR e.until < clock_timestamp()))"
            " ORDER BY l.state = 'open' DESC, l.opened DESC LIMIT 1",
            (name,),
        ).fetchone()
        return str(row[0]) if row else _create(session, name, now)


def _create(session: Session, name: str, now: int) -> str:
    """Create a log with the activations of all subscriptions, and make servers follow it."""
    log = secrets.token_hex(16)
    session.execute("INSERT INTO logs VALUES (%s, %s, NULL, 'open', %s)", (log, name, now))
    session.execute(
        "INSERT INTO leases (name, until) VALUES (%s, clock_timestamp() + %s * INTERVAL '1 second')",
        (f"log:{log}", LEASE_SECONDS),
    )
    servers = [str(id) for (id,) in session.execute("SELECT id FROM servers ORDER BY id").fetchall()]
    # The first owner has the token 1.
    for head, (server, kind, fields) in enumerate(_beginning(session, servers), 1):
        _append(session, log, head, now, server, kind, **fields)
    session.execute(
        "SELECT 1 FROM leases e JOIN logs l ON e.name = 'log:' || l.log WHERE l.state != 'retired'"
        " ORDER BY e.name FOR UPDATE OF e"
    )
    others = session.execute(
        "SELECT l.log, coalesce((SELECT max(last) FROM log_records r WHERE r.log = l.log), 0) FROM logs l"
        " WHERE l.state != 'retired' AND l.log != %s ORDER BY l.log",
        (log,),
    ).fetchall()
    for other, last in others:
        for place, server in enumerate(servers, 1):
            _append(session, other, int(last) + place, now, server, "follow", log=log)
    session.execute("UPDATE directory SET revision = revision + 1")
    session.execute(
        "UPDATE leases SET revision = (SELECT revision FROM directory) WHERE name IN"
        " (SELECT 'log:' || log FROM logs WHERE state != 'retired')"
    )
    session.execute(
        "SELECT pg_notify(current_schema() || '_changes', (SELECT revision::text FROM directory))"
    )
    return log


def _beginning(
    session: Session, servers: Sequence[str]
) -> Iterator[tuple[str, protocol.Kind, dict[str, Any]]]:
    """Yield the control records with which a log begins: joins, activations, pauses, renewals."""
    for server in servers:
        yield server, "join", {"incarnation": 1, "shared": True}
        rows = session.execute(
            "SELECT id, version, paused, renewed, expires FROM subscriptions WHERE server = %s"
            " ORDER BY serial",
            (server,),
        ).fetchall()
        for start in range(0, len(rows), _BATCH):
            some = rows[start : start + _BATCH]
            yield server, "activate", {"versions": [(id, version) for id, version, *_ in some]}
            paused = [id for id, _, is_paused, *_ in some if is_paused]
            if paused:
                revision = session.execute("SELECT revision + 1 FROM directory").fetchone()
                assert revision is not None
                yield server, "pause", {"ids": paused, "revision": revision[0]}
            expiries = [(id, expires) for id, _, _, renewed, expires in some if renewed]
            if expiries:
                yield server, "renew", {"expiries": expiries}


def _append(
    session: Session, to: str, offset: int, time: int, server: str, kind: protocol.Kind, **fields: Any
) -> None:
    control = protocol.Control(offset=offset, time=time, kind=kind, **fields)
    session.execute(
        "INSERT INTO log_records VALUES (%s, 1, %s, NULL, %s, %s, NULL, %s)",
        (offset, time, server, protocol.encode(control), to),
    )


# -- the end --------------------------------------------------------------------------------------------


def retire(transaction: Transaction, log: str, head: int, servers: Sequence[str]) -> bool:
    """Retire a log that all servers have read up to `head`; return whether nothing new is in it.

    The own log tells the servers.
    """
    connection = transaction.connection
    stream = next((one for one in transaction.streams if one.log == log), None)
    if stream is None or stream.head != head or is_needed(connection, log, transaction.time):
        return False
    connection.execute("UPDATE logs SET state = 'retired' WHERE log = ?", (log,))
    for server in servers:
        transaction.append_to(transaction.own, server, "retire", log=log)
    return True


def is_needed(connection: Connection, log: str, now: int) -> bool:
    """Return whether a log has replays to finish, or events that are retained."""
    return bool(
        first_column(
            connection,
            "SELECT 1 FROM log_replays WHERE log = ?1 UNION ALL"
            " SELECT 1 FROM log_records WHERE log = ?1 AND expires > ?2 LIMIT 1",
            log,
            now,
        )
    )


def forget(transaction: Transaction) -> None:
    """Delete the records of a retired log, by its owner."""
    for table in ("records", "cursors", "replays", "meta", "retained"):
        transaction.connection.execute(f"DELETE FROM {table}")
