"""Whose secret signs which notifications: key rings, by tenant, owner and URL.

All of an owner's subscriptions to one URL share a ring, so that their notifications merge and one secret
verifies them; a subscriber who brings a secret of their own gets the ring of that secret. An owner is a name
inside a tenant: two tenants never share a ring, whatever owner, URL and secret they name. Rings of different
owners are different addresses to the servers, although the URL is the same. A ring is made here, before its
first subscription is stored; servers get it with what they store, and hear of a rotation through the log, so
that one that is away hears of it when it is back.

A secret that is made here is shown in the answer to the request that made it, and never again.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispatcher import changes, streaming
from dispatcher.changes import Kind
from dispatcher.log import Log, Transaction
from edn import namespace, webhooks
from edn.errors import Conflict, NotFound
from edn.webhooks import KeyRing

if TYPE_CHECKING:
    from dispatcher.subscriptions import Wanted

_FIELDS = "id, current, previous, until, version"
#: what the servers post to; mail is signed only for those who bring a secret
_SIGNED = ("http:", "https:", "cloudevents:", "consent:")
#: tenant, owner, URL, fingerprint of a secret that was given
_Key = tuple[str, str, str, str]


def read(connection: sqlite3.Connection, ids: Iterable[str]) -> list[KeyRing]:
    """Rings by id; the empty id is none."""
    found = []
    for id in sorted(set(ids) - {""}):
        row = connection.execute(f"SELECT {_FIELDS} FROM rings WHERE id = ?", (id,)).fetchone()
        if row is not None:
            found.append(KeyRing(*row))
    return found


async def assign(log: Log, wanted: Sequence[Wanted]) -> tuple[list[Wanted], dict[str, str]]:
    """The same requests, each with its ring; and the secrets that were made for them, by ring."""
    known: dict[_Key, str] = {}
    shown: dict[str, str] = {}
    keys = {key for want in wanted if (key := _key(want)) is not None}
    missing = []
    for key in sorted(keys):
        found = _used(log.reader, key)
        if found is None:
            missing.append(key)
        else:
            known[key] = found
    if missing:
        given = {_key(want): want.secret for want in wanted if want.secret is not None}

        def make(transaction: Transaction) -> None:
            for key in missing:
                # Somebody else may have made it meanwhile; then theirs was shown, to them.
                standing = _used(transaction.connection, key)
                if standing is not None:
                    known[key] = standing
                    continue
                secret = given.get(key)
                id = secrets.token_hex(8)
                if secret is None:
                    secret = shown[id] = webhooks.new_secret()
                transaction.connection.execute(
                    "INSERT INTO rings VALUES (?, ?, ?, ?, ?, ?, NULL, 0, 1)", (id, *key, secret)
                )
                changes.note(transaction, Kind.RING, id)
                known[key] = id

        await log.submit(make)
    return [replace(want, ring=known[key] if (key := _key(want)) else _mark(want)) for want in wanted], shown


def _key(want: Wanted) -> _Key | None:
    tenant = want.topic.tenant
    if want.secret is not None:
        return tenant, want.owner, want.url, webhooks.fingerprint(want.secret)
    return (tenant, want.owner, want.url, "") if want.url.lower().startswith(_SIGNED) else None


def _mark(want: Wanted) -> str:
    """Return what stands in place of a ring where nothing is signed: an owner's mark.

    So two owners get messages of their own from such sinks, too. A stream needs none: it is a subscription's.
    """
    if streaming.is_stream(want.url):
        return ""
    return "-" + hashlib.blake2b(want.owner.encode(), digest_size=8).hexdigest()


def _used(connection: sqlite3.Connection, key: _Key) -> str | None:
    """The ring of a key: any for a secret that was given; one that is in use for one that was made here.

    Nobody knows a secret any more whose last subscription is gone: the next one shall get a new one.
    """
    row = connection.execute(
        "SELECT id FROM rings r WHERE tenant = ? AND owner = ? AND url = ? AND given = ?"
        " AND (given != '' OR EXISTS (SELECT 1 FROM subscriptions s WHERE s.ring = r.id AND s.ring != ''))"
        " LIMIT 1",
        key,
    ).fetchone()
    return None if row is None else str(row[0])


@dataclass(frozen=True, slots=True)
class Rotated:
    ring: KeyRing
    #: subscriptions whose notifications it signs
    subscriptions: int


async def rotate(log: Log, subscription: str, secret: str | None, grace: int) -> Rotated:
    """Give a subscription's ring another secret; the one before counts for `grace` more microseconds."""

    def operation(transaction: Transaction) -> Rotated:
        connection = transaction.connection
        row = connection.execute("SELECT ring FROM subscriptions WHERE id = ?", (subscription,)).fetchone()
        if row is None:
            raise NotFound(f'no subscription "{namespace.told_as(subscription)[:80]}"')
        known = read(connection, [row[0]])
        if not known:
            raise Conflict("its notifications are not signed; PUT it with a sink.secret to have them signed")
        if secret == known[0].current:
            return Rotated(known[0], _count(connection, known[0].id))  # the same request again
        ring = known[0].rotated(secret or webhooks.new_secret(), transaction.estimate + grace)
        connection.execute(
            "UPDATE rings SET current = ?, previous = ?, until = ?, version = ? WHERE id = ?",
            (ring.current, ring.previous, ring.until, ring.version, ring.id),
        )
        announce(transaction, ring)
        changes.note(transaction, Kind.RING, ring.id)
        return Rotated(ring, _count(connection, ring.id))

    return await log.submit(operation)


def announce(transaction: Transaction, ring: KeyRing) -> None:
    """Tell the servers that use a ring of its new secret."""
    hosts = transaction.connection.execute(
        "SELECT DISTINCT server FROM subscriptions WHERE ring = ? AND ring != '' AND server != ''", (ring.id,)
    ).fetchall()
    for (server,) in hosts:
        transaction.append_control(server, "rotate", rings=[ring])


def _count(connection: sqlite3.Connection, ring: str) -> int:
    row = connection.execute(
        "SELECT count(*) FROM subscriptions WHERE ring = ? AND ring != '' AND instr(id, ?) = 0",
        (ring, namespace.MEMBER),
    ).fetchone()
    return int(row[0])
