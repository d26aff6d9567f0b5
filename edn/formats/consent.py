"""URLs of sinks that must consent before anything is posted to them.

A webhook that must consent is stored as `consent:https://…`: an address of its own, with its own key ring and
queue. A CloudEvents sink has a flag for it in its URL (`edn.formats.cloudevents.SinkAddress.consent`).
Subscribers never write this form.
"""

from __future__ import annotations

from edn.errors import InvalidSink
from edn.formats.cloudevents import SCHEME, SinkAddress

PREFIX = "consent:"
_ASKABLE = ("http:", "https:")


def require_consent(url: str) -> str:
    """Returns the URL of the same sink with consent required; raises `InvalidSink`."""
    scheme = url.partition(":")[0].lower()
    if scheme == SCHEME:
        address = SinkAddress.parse(url)
        return SinkAddress(address.mode, address.to, True).url()
    if not url.lower().startswith(_ASKABLE):
        raise InvalidSink(
            f'sinks of this network must consent, and only https:// sinks can be asked, got "{scheme[:20]}:"',
            pointer="/url",
        )
    return PREFIX + url


def consent_url(url: str) -> str | None:
    """Returns the URL that must consent before a sink is posted to; None if no consent is required."""
    if url.startswith(PREFIX):
        return url.removeprefix(PREFIX)
    if not url.startswith(f"{SCHEME}:"):
        return None
    parsed = SinkAddress.parse(url)
    return parsed.to if parsed.consent else None
