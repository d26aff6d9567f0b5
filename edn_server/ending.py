"""What is told, and to whom, when a subscription ends by another's will than its subscriber's.

WS-Eventing has a message for it, and subscribers may name an endpoint that it goes to (`edn.soap.address`).
It is a row of the outbox like any other, in the transaction in which the log ends the subscription: told
once, and tried again until it is taken. A subscription also ends when its endpoint has been given up: then
its server asks the dispatcher to end it (`end_failed`), again and again until the log says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from urllib.parse import quote

import msgspec
import numpy as np
import structlog

from edn import clock
from edn.errors import InvalidSink
from edn.namespace import subscription_of, told_as
from edn.runtime.control_client import CallFailed
from edn.soap.address import SoapAddress
from edn.soap.eventing import CANCELLED, FAILED
from edn_server import addresses, outbox
from edn_server.dispatchers import Dispatchers
from edn_server.hosting import Hosting

logger = structlog.get_logger()

_REASONS = {
    CANCELLED: "the subscription was cancelled, or its topic deleted",
    FAILED: "notifications were not taken for too long",
}


class End(msgspec.Struct, frozen=True):
    """That a subscription was ended by somebody else than its subscriber."""

    subscription: str
    #: as WS-Eventing names it: DeliveryFailure or SourceCancelling
    status: str
    reason: str


def body_of(end: End) -> bytes:
    """The body that tells of an end; to readers of notifications it is one without any."""
    return msgspec.json.encode({"notifications": [], "end": end})


def write(db: sqlite3.Connection, hosting: Hosting, cancelled: Iterable[tuple[int, str]]) -> list[str]:
    """Rows for those who want to be told that versions ended, by (number, why); their addresses."""
    told = []
    now = int(clock.steady() * 1e6)
    for number, why in cancelled:
        target = _told(hosting.addresses[hosting.address[number]])
        if target is None:
            continue
        named = told_as(hosting.versions[number].id)
        body = body_of(End(named, why, _REASONS.get(why, why)))
        db.execute(
            "INSERT INTO outbox (address, batch, events, composition, created) VALUES (?, ?, 1, ?, ?)",
            (target, outbox.READY, body, now),
        )
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


async def end_failed(hosting: Hosting, disabled: Sequence[str], dispatchers: Dispatchers) -> None:
    """Ask for the end of what lives at addresses that were given up and whose protocol ends it then."""
    for address in disabled:
        if not addresses.url_of(address).startswith("soap:"):
            continue
        for subscription in _living(hosting, address):
            path = f"/internal/subscriptions/{quote(subscription, safe='')}/failed"
            try:
                answer = await dispatchers.request("POST", path)
            except CallFailed as error:
                logger.warning("no dispatcher ends a subscription", reason=str(error))
                return
            if answer.status_code not in (204, 404):
                logger.warning("a subscription was not ended", status=answer.status_code)
                return


def _living(hosting: Hosting, address: str) -> list[str]:
    places = [place for place, known in enumerate(hosting.addresses) if known == address]
    numbers = np.flatnonzero(hosting.living & np.isin(hosting.address, places)).tolist()
    found = (hosting.versions.get(number) for number in numbers)
    return list(dict.fromkeys(subscription_of(version.id) for version in found if version is not None))
