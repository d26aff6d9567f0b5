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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispatcher.store import change_feed, signing_keys
from dispatcher.store.change_feed import Kind
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.subscriptions.stream_address import is_stream
from edn.errors import Conflict, NotFound
from edn.formats import webhooks
from edn.formats.webhooks import KeyRing
from edn.model import namespace

if TYPE_CHECKING:
    from dispatcher.subscriptions.service import Wanted

#: what the servers post to; mail is signed only for those who bring a secret
_SIGNED = ("http:", "https:", "cloudevents:", "consent:")


async def assign(log: Log, wanted: Sequence[Wanted]) -> tuple[list[Wanted], dict[str, str]]:
    """The same requests, each with its ring; and the secrets that were made for them, by ring."""
    shown: dict[str, str] = {}
    keys = {key for want in wanted if (key := _key(want)) is not None}
    found = await log.reading(
        lambda connection: {key: signing_keys.find_used(connection, key) for key in sorted(keys)}
    )
    known = {key: ring for key, ring in found.items() if ring is not None}
    missing = [key for key, ring in found.items() if ring is None]
    if missing:
        given = {_key(want): want.secret for want in wanted if want.secret is not None}

        def make(transaction: Transaction) -> None:
            for key in missing:
                # Somebody else may have made it meanwhile; then theirs was shown, to them.
                standing = signing_keys.find_used(transaction.connection, key)
                if standing is not None:
                    known[key] = standing
                    continue
                secret = given.get(key)
                id = secrets.token_hex(8)
                if secret is None:
                    secret = shown[id] = webhooks.new_secret()
                signing_keys.insert(transaction, id, key, secret)
                change_feed.note(transaction, Kind.RING, id)
                known[key] = id

        await log.submit(make)
    return [replace(want, ring=known[key] if (key := _key(want)) else _mark(want)) for want in wanted], shown


def _key(want: Wanted) -> signing_keys.Key | None:
    tenant = want.topic.tenant
    if want.secret is not None:
        return tenant, want.owner, want.url, webhooks.fingerprint(want.secret)
    return (tenant, want.owner, want.url, "") if want.url.lower().startswith(_SIGNED) else None


def _mark(want: Wanted) -> str:
    """Return what stands in place of a ring where nothing is signed: an owner's mark.

    So two owners get messages of their own from such sinks, too. A stream needs none: it is a subscription's.
    """
    if is_stream(want.url):
        return ""
    return "-" + hashlib.blake2b(want.owner.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Rotated:
    ring: KeyRing
    #: subscriptions whose notifications it signs
    subscriptions: int


async def rotate(log: Log, subscription: str, secret: str | None, grace: int) -> Rotated:
    """Give a subscription's ring another secret; the one before counts for `grace` more microseconds."""

    def operation(transaction: Transaction) -> Rotated:
        connection = transaction.connection
        assigned = signing_keys.of_subscription(connection, subscription)
        if assigned is None:
            raise NotFound(f'no subscription "{namespace.public_id(subscription)[:80]}"')
        known = signing_keys.read(connection, [assigned])
        if not known:
            raise Conflict("its notifications are not signed; PUT it with a sink.secret to have them signed")
        if secret == known[0].current:
            return Rotated(known[0], signing_keys.count(connection, known[0].id))  # the same request again
        ring = known[0].rotated(secret or webhooks.new_secret(), transaction.estimate + grace)
        signing_keys.update(transaction, ring)
        announce(transaction, ring)
        change_feed.note(transaction, Kind.RING, ring.id)
        return Rotated(ring, signing_keys.count(connection, ring.id))

    return await log.submit(operation)


def announce(transaction: Transaction, ring: KeyRing) -> None:
    """Tell the servers that use a ring of its new secret."""
    for server in signing_keys.hosts(transaction.connection, ring.id):
        transaction.append_control(server, "rotate", rings=[ring])
