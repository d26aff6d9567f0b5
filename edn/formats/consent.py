"""Addresses of plain webhooks whose sinks must consent before anything is posted to them.

Such a sink is stored as `consent:https://…`: an address of its own, with its own key ring and queue. Sinks of
CloudEvents say it inside their address (`edn.formats.cloudevents.SinkAddress.consent`). Subscribers never
spell it.
"""

from __future__ import annotations

from edn.errors import InvalidSink
from edn.formats.cloudevents import SCHEME, SinkAddress

PREFIX = "consent:"
_ASKABLE = ("http:", "https:")


def asked(url: str) -> str:
    """Return the address under which a sink is asked before it is posted to; raises `InvalidSink`."""
    scheme = url.partition(":")[0].lower()
    if scheme == SCHEME:
        address = SinkAddress.parse(url)
        return SinkAddress(address.mode, address.to, True).url()
    if not url.lower().startswith(_ASKABLE):
        raise InvalidSink(
            f'sinks must consent before they are posted to, and a "{scheme[:20]}:" address cannot be asked; '
            "https://… can",
            pointer="/url",
        )
    return PREFIX + url


def asked_of(url: str) -> str | None:
    """Return the URL that must consent before an address is posted to; None if it need not be asked."""
    if url.startswith(PREFIX):
        return url.removeprefix(PREFIX)
    if not url.startswith(f"{SCHEME}:"):
        return None
    parsed = SinkAddress.parse(url)
    return parsed.to if parsed.consent else None
