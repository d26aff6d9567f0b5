"""Assigns ids to the settings of sinks, and stores their credentials.

Credentials are sealed in the directory and never shown. The id of settings contains a keyed fingerprint of
their credentials, so that it reveals nothing about a weak password, and subscriptions with equal settings
share one address on a server. A change of a subscription may keep its credentials without naming them, but
only while its URL stays: otherwise whoever may change a subscription could have them sent to another host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from dispatcher.store import directory
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection
from dispatcher.subscriptions.sinks import target_of
from edn.errors import InvalidSink
from edn.formats import sink_settings
from edn.formats.sink_settings import SinkSettings

if TYPE_CHECKING:
    from dispatcher.subscriptions.service import SubscriptionRequest


async def assign(
    log: Log,
    requests: Sequence[SubscriptionRequest],
    found: Subscription | None = None,
    *,
    many: bool = False,
) -> list[SubscriptionRequest]:
    """Return the requests with ids in their settings, once the credentials are stored.

    `found`: the subscription that the only request changes; `many`: the requests are a list. Raises
    `InvalidSink`.
    """
    if all(request.settings.is_default for request in requests):
        return list(requests)

    def work(connection: Connection) -> tuple[list[SubscriptionRequest], dict[str, str]]:
        assigned, plain = [], {}
        for place, request in enumerate(requests):
            known = found
            if known is None and request.id is not None:
                known = directory.find(connection, request.id)
            try:
                settings, secret = _identify(connection, request, known)
            except InvalidSink as error:
                error.pointer = f"{f'/{place}' if many else ''}/sink{error.pointer or ''}"
                raise
            if secret is not None:
                plain[settings.id] = secret
            assigned.append(replace(request, settings=settings))
        return assigned, plain

    assigned, plain = await log.reading(work)
    if plain:
        await log.submit(
            lambda transaction: directory.store_credentials(transaction.connection, plain, transaction.time)
        )
    return assigned


def _identify(
    connection: Connection, request: SubscriptionRequest, found: Subscription | None
) -> tuple[SinkSettings, str | None]:
    """Return the settings with their id, and the credentials to store."""
    settings = request.settings
    if not settings.credentials:
        return (settings if settings.is_default else settings.with_id(b"")), None
    before, stored = sink_settings.decode(found.settings if found else ""), None
    if found is not None and before.credentials == settings.credentials:
        stored = directory.read_credentials(connection, [found.settings]).get(before.id)
    if request.credentials is None:
        secret = _kept(request, found, stored)
        sink_settings.check_headers(settings.headers, sink_settings.decode_credentials(secret))
    else:
        secret = sink_settings.encode_credentials(request.credentials)
    if secret == stored and msgspec.structs.replace(before, id="") == settings:
        return before, None  # also after a change of the keys that fingerprints depend on
    fingerprint = connection.box.fingerprint(secret.encode(), "credentials")
    return settings.with_id(fingerprint), secret


def _kept(request: SubscriptionRequest, found: Subscription | None, stored: str | None) -> str:
    kind = request.settings.credentials
    if found is None or stored is None:
        raise InvalidSink(
            f"credentials of type {kind} must be complete: the subscription has none that could be kept",
            pointer="/credentials",
        )
    if target_of(found.url) != target_of(request.url):
        raise InvalidSink(
            "credentials must be given again, because the URL changes: they are kept for the same URL only",
            pointer="/credentials",
        )
    return stored
