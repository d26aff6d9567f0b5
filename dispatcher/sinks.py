"""Sinks between how subscribers name them and how they are stored: as one address each."""

from __future__ import annotations

from typing import Any

from dispatcher import streaming
from dispatcher.bodies import SinkBody
from dispatcher.directory import Subscription
from edn import cloudevents
from edn.cloudevents import SinkAddress
from edn.errors import InvalidSink

_CLOUDEVENTS = "cloudevents-"


def address_of(sink: SinkBody, *, consent: bool = False) -> str:
    """`consent`: sinks of CloudEvents are asked for theirs, whatever the subscriber says of it."""
    if sink.format.startswith(_CLOUDEVENTS):
        mode = sink.format.removeprefix(_CLOUDEVENTS)
        return SinkAddress(mode, sink.url, consent or bool(sink.consent)).url()
    if sink.consent:
        raise InvalidSink(
            "sinks of CloudEvents are asked for their consent; the format cloudevents-binary is one",
            pointer="/consent",
        )
    return sink.url


def view(found: Subscription, secret: str | None) -> dict[str, Any] | None:
    """A subscription's sink as it is shown, None for a stream; `secret` is one that was made just now."""
    if streaming.streams(found):
        return None
    shown: dict[str, Any] = {"url": found.url, "recipient": found.recipient}
    if found.url.startswith(f"{cloudevents.SCHEME}:"):
        address = SinkAddress.parse(found.url)
        shown["url"] = address.to
        shown["format"] = _CLOUDEVENTS + address.mode
        if address.consent:
            shown["consent"] = True
    if secret is not None:
        shown["secret"] = secret
    return shown
