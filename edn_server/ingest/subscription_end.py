"""Writes the notice that a subscription ended by another's will than its subscriber's.

WS-Eventing has a message for it, and subscribers may name an endpoint that it goes to
(`edn.formats.soap.address`). It is a row of the outbox like any other, written in the transaction in which
the log ends the subscription: delivered once, and retried until the endpoint accepts it.
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
    FAILED: "notifications were not taken for too long",
}


def write(db: Connection, registry: SubscriptionRegistry, cancelled: Iterable[tuple[int, str]]) -> list[str]:
    """Rows for those who want to be told that versions ended, by (number, why); their addresses."""
    told = []
    now = int(clock.steady() * 1e6)
    for number, why in cancelled:
        target = _told(registry.addresses[registry.address[number]])
        if target is None:
            continue
        named = public_id(registry.versions[number].id)
        body = body_of(End(named, why, _REASONS.get(why, why)))
        outbox.write_body(db, target, body, 1, created=now)
        told.append(target)
    return told


def _told(address: str) -> str | None:
    """The address that is told of the end of a subscription at this one."""
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
