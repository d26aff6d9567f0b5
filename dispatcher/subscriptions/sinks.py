"""Sinks between how subscribers name them and how they are stored: as one address each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dispatcher.store.directory import Subscription
from dispatcher.subscriptions.stream_address import is_stream
from edn.formats import cloudevents
from edn.formats.cloudevents import SinkAddress
from edn.formats.consent import PREFIX, require_consent

_CLOUDEVENTS = "cloudevents-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A sink as a subscriber names it."""

    url: str
    recipient: str | None = None
    format: str = "json"
    consent: bool | None = None
    secret: str | None = field(default=None, repr=False)


def address_of(sink: Sink, *, consent: bool = False) -> str:
    """Return the address to store; `consent`: sinks must consent, whatever the subscriber says of it."""
    asks = consent or bool(sink.consent)
    if sink.format.startswith(_CLOUDEVENTS):
        mode = sink.format.removeprefix(_CLOUDEVENTS)
        return SinkAddress(mode, sink.url, asks).url()
    return require_consent(sink.url) if asks else sink.url


def view(found: Subscription, secret: str | None) -> dict[str, Any] | None:
    """A subscription's sink as it is shown, None for a stream; `secret` is one that was made just now."""
    if is_stream(found.url):
        return None
    shown: dict[str, Any] = {"url": found.url, "recipient": found.recipient}
    if found.url.startswith(f"{cloudevents.SCHEME}:"):
        address = SinkAddress.parse(found.url)
        shown["url"] = address.to
        shown["format"] = _CLOUDEVENTS + address.mode
        if address.consent:
            shown["consent"] = True
    elif found.url.startswith(PREFIX):
        shown["url"] = found.url.removeprefix(PREFIX)
        shown["consent"] = True
    if secret is not None:
        shown["secret"] = secret
    return shown
