"""Sinks between how subscribers name them and how they are stored: as one address each."""

from __future__ import annotations

from typing import Any

from dispatcher import streaming
from dispatcher.bodies import SinkBody
from dispatcher.directory import Subscription
from edn import cloudevents

_CLOUDEVENTS = "cloudevents-"


def address_of(sink: SinkBody) -> str:
    if sink.format.startswith(_CLOUDEVENTS):
        return cloudevents.sink_address(sink.format.removeprefix(_CLOUDEVENTS), sink.url)
    return sink.url


def view(found: Subscription, secret: str | None) -> dict[str, Any] | None:
    """A subscription's sink as it is shown, None for a stream; `secret` is one that was made just now."""
    if streaming.streams(found):
        return None
    shown: dict[str, Any] = {"url": found.url, "recipient": found.recipient}
    if found.url.startswith(f"{cloudevents.SCHEME}:"):
        mode, shown["url"] = cloudevents.sink_of(found.url)
        shown["format"] = _CLOUDEVENTS + mode
    if secret is not None:
        shown["secret"] = secret
    return shown
