"""Notifies subscribers of subscriptions that ended without their request.

WS-Eventing has a message for it, and subscribers may name an endpoint for it (`edn.formats.soap.address`).
The notice is an ordinary outbox row, written in the transaction that ends the subscription, and retried until
the endpoint accepts it.
"""

from __future__ import annotations

from collections.abc import Iterable

from edn.errors import InvalidSink
from edn.formats.soap.address import SoapAddress
from edn.formats.soap.eventing import CANCELLED, FAILED
from edn.model.namespace import public_id
from edn.runtime import clock
from edn_server.outbox.bodies import End, body_of
from edn_server.storage import addresses, outbox
from edn_server.storage.interface import Connection
from edn_server.subscriptions.registry import SubscriptionRegistry

_REASONS = {
    CANCELLED: "the subscription was cancelled, or its topic deleted",
    FAILED: "notifications could not be delivered for too long",
}


def write(db: Connection, registry: SubscriptionRegistry, cancelled: Iterable[tuple[int, str]]) -> list[str]:
    """Writes a notice for each (number, reason) whose subscriber wants one; returns the addresses."""
    notified = []
    now = int(clock.steady() * 1e6)
    for number, why in cancelled:
        target = _end_address(registry.addresses[registry.address[number]])
        if target is None:
            continue
        named = public_id(registry.versions[number].id)
        body = body_of(End(named, why, _REASONS.get(why, why)))
        outbox.write_body(db, target, body, 1, created=now)
        notified.append(target)
    return notified


def _end_address(address: str) -> str | None:
    """Returns the address for the end notice of a subscription at this address."""
    url = addresses.url_of(address)
    if not url.startswith("soap:"):
        return None
    try:
        target = SoapAddress.parse(url).ending()
    except InvalidSink:
        return None
    return (
        None
        if target is None
        else addresses.address_of(addresses.tenant_of(address), target.url(), addresses.ring_of(address))
    )
