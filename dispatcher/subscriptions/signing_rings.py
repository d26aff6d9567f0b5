"""Key rings of webhook signatures: one per tenant, owner and URL.

All subscriptions of an owner to one URL share a ring, so that their notifications merge and one secret
verifies them; a secret that the subscriber gives has a ring of its own. Two tenants never share a ring, and
rings of different owners are different addresses on the servers. Servers receive a ring with the first
subscription, and a rotation through the log, so that an offline server receives it later.

A generated secret is shown once, in the answer to the request that created it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispatcher.store import signing_keys
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.subscriptions.lifecycle import not_found
from dispatcher.subscriptions.sinks import is_stream
from edn.errors import Conflict
from edn.formats import broker_url, webhooks
from edn.formats.webhooks import KeyRing

if TYPE_CHECKING:
    from dispatcher.subscriptions.service import SubscriptionRequest

#: URLs that are always signed; mail is signed only if the subscriber gives a secret
_SIGNED = ("http:", "https:", "cloudevents:", "consent:", *(f"{one}:" for one in broker_url.SCHEMES))


async def assign(
    log: Log, requests: Sequence[SubscriptionRequest]
) -> tuple[list[SubscriptionRequest], dict[str, str]]:
    """Assign a ring to each request; return the requests, and the generated secrets by ring."""
    generated: dict[str, str] = {}
    keys = {key for one in requests if (key := _key(one)) is not None}
    found = await log.reading(
        lambda connection: {key: signing_keys.find_used(connection, key) for key in sorted(keys)}
    )
    known = {key: ring for key, ring in found.items() if ring is not None}
    missing = [key for key, ring in found.items() if ring is None]
    if missing:
        given = {_key(one): one.secret for one in requests if one.secret is not None}

        def create(transaction: Transaction) -> None:
            for key in missing:
                # A concurrent request may have created it, and its answer shows the secret.
                existing = signing_keys.find_used(transaction.connection, key)
                if existing is not None:
                    known[key] = existing
                    continue
                secret = given.get(key)
                id = secrets.token_hex(8)
                if secret is None:
                    secret = generated[id] = webhooks.new_secret()
                signing_keys.insert(transaction, id, key, secret)
                known[key] = id

        await log.submit(create)
    assigned = [replace(one, ring=known[key] if (key := _key(one)) else _owner_mark(one)) for one in requests]
    return assigned, generated


def _key(request: SubscriptionRequest) -> signing_keys.Key | None:
    tenant = request.topic.tenant
    if request.secret is not None:
        return tenant, request.owner, request.url, webhooks.fingerprint(request.secret)
    return (tenant, request.owner, request.url, "") if request.url.lower().startswith(_SIGNED) else None


def _owner_mark(request: SubscriptionRequest) -> str:
    """Return a substitute for the ring of unsigned sinks that keeps notifications of two owners apart."""
    if is_stream(request.url):
        return ""
    return "-" + hashlib.blake2b(request.owner.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Rotated:
    ring: KeyRing
    subscriptions: int


async def rotate(log: Log, subscription: str, secret: str | None, grace: int) -> Rotated:
    """Rotate the secret of a subscription's ring; the previous one is valid for `grace` more microseconds."""

    def operation(transaction: Transaction) -> Rotated:
        connection = transaction.connection
        assigned = signing_keys.of_subscription(connection, subscription)
        if assigned is None:
            raise not_found(subscription)
        known = signing_keys.read(connection, [assigned])
        if not known:
            raise Conflict(
                "notifications of this subscription are not signed; PUT it with a sink.secret to sign them"
            )
        [ring] = known
        if secret != ring.current:  # else it is the repeat of a request
            ring = ring.rotated(secret or webhooks.new_secret(), transaction.estimate + grace)
            signing_keys.update(transaction, ring)
            announce(transaction, ring)
        return Rotated(ring, signing_keys.count(connection, ring.id))

    return await log.submit(operation)


def announce(transaction: Transaction, ring: KeyRing) -> None:
    """Append a control record with a rotated ring for all servers that use it."""
    for server in signing_keys.hosts(transaction.connection, ring.id):
        transaction.append_control(server, "rotate", rings=[ring])
