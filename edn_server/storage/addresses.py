"""Addresses: tenant, key ring, settings and URL of a sink in one string.

Rows of the outbox, workers, circuit breakers, attempts and dead letters are keyed by an address. The tenant
is part of every address, so two tenants with the same URL never share a POST, a queue or a circuit breaker,
and no code has to check for it:

    acme/3f2a91c04b1d77aa/https://example.org/hook    a sink of tenant acme, signed with that ring
    acme/3f2a91c04b1d77aa+5b1c…/https://example.org   the same with settings of its own, by their id
    acme//mailto:ann@example.org                      a sink of tenant acme, not signed
    //https://example.org/hook                        a sink of the operator, not signed
    stream:acme,s1                                    the stream of a subscription, by its key

Subscriptions whose settings differ (`edn.formats.sink_settings`) have addresses of their own: a POST has one
set of headers, and a queue one order and one schedule of retries.

Tenant, ring and settings contain no slash, so the URL is everything after the second slash. A tenant contains
no colon either, so no address of a sink looks like a stream.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from edn.model import namespace

#: begins the address of a stream
STREAM = "stream:"
#: begins the URL of a CloudEvents sink (`edn.formats.cloudevents.SinkAddress`)
CLOUDEVENTS = "cloudevents:"


class Parts(NamedTuple):
    """The parts of an address; of a stream, URL and host are the address itself."""

    tenant: str
    #: id of the key ring; empty if notifications are not signed
    ring: str
    url: str
    #: id of the sink's settings; empty: those of the server
    settings: str
    #: host and port as the URL writes them, without credentials; the whole URL if it names none
    host: str


@lru_cache(maxsize=1 << 16)
def parts_of(address: str) -> Parts:
    """Split an address; cached, because every attempt needs it."""
    if not is_sink(address):
        return Parts(namespace.owner_of(address[len(STREAM) :]), "", address, "", address)
    tenant, ring, url = address.split("/", 2)
    ring, _, settings = ring.partition("+")
    # The URL inside that of a CloudEvents sink is escaped.
    rest = (unquote(url) if url.startswith(CLOUDEVENTS) else url).partition("://")[2]
    host = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return Parts(tenant, ring, url, settings, host if rest else url)


def address_of(tenant: str, url: str, ring: str, settings: str = "") -> str:
    """Compose the address of a sink; the URL of a stream is its address."""
    if url.startswith(STREAM):
        return url
    if "/" in tenant or ":" in tenant or "/" in ring:
        raise ValueError(f"tenant and ring must not hold a slash or a colon, got {tenant!r} and {ring!r}")
    if settings:
        if not settings.isalnum() or "+" in ring:
            raise ValueError(f"settings must be an id of letters and digits, got {settings[:80]!r}")
        return f"{tenant}/{ring}+{settings}/{url}"
    return f"{tenant}/{ring}/{url}"


def is_sink(address: str) -> bool:
    """Return whether a worker delivers the rows of an address; rows of a stream wait for its reader."""
    return not address.startswith(STREAM)


def streaming(address: str) -> str | None:
    """Return the subscription of a stream; None for a sink."""
    return address[len(STREAM) :] if address.startswith(STREAM) else None


def tenant_of(address: str) -> str:
    """Return the tenant of an address; empty is the operator."""
    return parts_of(address).tenant


def ring_of(address: str) -> str:
    """Return the id of the key ring; empty if notifications are not signed."""
    return parts_of(address).ring


def settings_of(address: str) -> str:
    """Return the id of the sink's settings; empty: those of the server."""
    return parts_of(address).settings


def url_of(address: str) -> str:
    """Return the URL of the sink."""
    return parts_of(address).url


def host_of(address: str) -> str:
    """Return the host and port of a sink; the address of a stream."""
    return parts_of(address).host


def stream_of(subscription: str) -> str:
    """Compose the address of a subscription's stream."""
    return STREAM + subscription
