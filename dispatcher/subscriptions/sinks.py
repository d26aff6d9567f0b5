"""Sinks: from the form in a request to the stored URL, and back.

The URL of a stream, which has no sink, is `stream:` and the id of the subscription.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dispatcher.store.directory import Subscription
from edn.formats import cloudevents
from edn.formats.cloudevents import SinkAddress
from edn.formats.consent import PREFIX
from edn.formats.consent import require_consent as with_consent

_CLOUDEVENTS = "cloudevents-"
_STREAM = "stream:"


def stream_url(subscription: str) -> str:
    return _STREAM + subscription


def is_stream(url: str) -> bool:
    return url.startswith(_STREAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    url: str
    recipient: str | None = None
    format: str = "json"
    consent: bool | None = None
    secret: str | None = field(default=None, repr=False)


def stored_url(sink: Sink, *, require_consent: bool) -> str:
    """Return the URL to store; `require_consent`: even if the subscriber does not ask for consent."""
    consent = require_consent or bool(sink.consent)
    if sink.format.startswith(_CLOUDEVENTS):
        return SinkAddress(sink.format.removeprefix(_CLOUDEVENTS), sink.url, consent).url()
    return with_consent(sink.url) if consent else sink.url


def view(found: Subscription, secret: str | None) -> dict[str, Any] | None:
    """Return the sink of a subscription for an answer, None for a stream; `secret`: a newly generated one."""
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
