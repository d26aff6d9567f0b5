"""The policy for sinks: which URLs and addresses may be notified (protection against SSRF).

Subscribers choose the URLs of sinks, and servers connect to them from inside the operator's network. So the
URL is checked when it is given (`check_url`), and the addresses of its host are checked at every connection
(`address_allowed`), because a name may resolve to another address by then.

IPv4-mapped, IPv4-compatible, NAT64, 6to4, Teredo and ISATAP addresses contain an IPv4 address, which must be
public, too.

An operator may allow networks (`--allow-sink-network`): their addresses may be private, and plain http is
allowed there. Nothing else opens: an IPv4-mapped address counts as its IPv4 address, any other form only as
itself. A name with plain http is accepted if any network is allowed, and checked at every connection.

Mail goes to the operator's relay, so only the form of a `mailto:` URL is checked. Of a `soap:` URL the
endpoints in it are checked. A message broker (`edn.formats.broker_url`) is checked like a web server. Entry
points of the group `edn.sinks` check URLs of other schemes.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any
from urllib.parse import unquote, urlsplit

from edn.errors import InvalidSink
from edn.formats import broker_url, cloudevents
from edn.formats.broker_url import BrokerUrl

MAX_URL = 2048

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)\Z")
#: numbers as the system's resolver reads them: decimal, octal or hexadecimal
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)\Z")
_LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
#: special ranges that `is_global` of older Python versions misses
_DENIED = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "240.0.0.0/4",
        "64:ff9b:1::/48",
        "100::/64",
        "2001:20::/28",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fec0::/10",
    )
)

LOOPBACK_REFUSED = (
    "the sink must not be a loopback address unless the network allows it (--allow-loopback-sinks)"
)
HTTP_REFUSED = "the sink's URL must begin with https://, got plain http"
_LOOPBACKS = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))

#: an addr-spec without quotes, comments and literals
_MAILBOX = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@(?=.{1,253}\Z)[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\Z"
)


def parse_network(text: str) -> Network:
    """Parses a network of `--allow-sink-network`; raises `ValueError`, also for all addresses."""
    network = ipaddress.ip_network(text)
    if not network.prefixlen:
        raise ValueError("a network must not contain all addresses")
    return network


def check_url(
    url: str,
    *,
    allow_loopback: bool = False,
    allow_http: bool = False,
    allow_mail: bool = False,
    networks: Sequence[Network] = (),
) -> None:
    """Raises `InvalidSink` unless the URL may be a sink; names are not resolved.

    `networks`: allowed although they are private.
    """
    if len(url) > MAX_URL:
        raise InvalidSink(f"the sink's URL must have at most {MAX_URL} characters, got {len(url)}")
    if not url.isascii() or any(character <= " " or character in '\x7f\\"<>^`{|}' for character in url):
        raise InvalidSink(
            "the sink's URL contains a character that is invalid in URLs; percent-encode it, and write the "
            "host in its ASCII form (xn--…)"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidSink(f"the sink's URL is invalid: {error}") from None
    if parts.scheme == "mailto":
        if not allow_mail:
            raise InvalidSink(
                "the sink must not be a mail address unless the network allows it (--allow-mail-sinks)"
            )
        mail_address(url)
        return
    if parts.scheme in ("cloudevents", "soap"):
        for target in _targets(url, parts.scheme):
            if not target.startswith(("http:", "https:")) and not (
                parts.scheme == "cloudevents" and broker_url.is_broker(target)
            ):
                raise InvalidSink(f"the URL in a {parts.scheme}: sink must begin with https://")
            check_url(target, allow_loopback=allow_loopback, allow_http=allow_http, networks=networks)
        return
    if parts.scheme in broker_url.SCHEMES:
        check_broker(
            broker_url.parse(url, "sink"),
            "sink",
            allow_loopback=allow_loopback,
            allow_plain=allow_http,
            networks=networks,
        )
        return
    if parts.scheme not in ("http", "https"):
        other = extension(parts.scheme)
        if other is None:
            raise InvalidSink(
                "the sink's URL must begin with https://, or with http:// if the network allows it, or with "
                f'the scheme of a broker ({", ".join(broker_url.SCHEMES)}), got "{parts.scheme}:…"'
            )
        other.check(url)
        return
    if "@" in parts.netloc:
        raise InvalidSink("the sink's URL must not contain a user name or password; use sink.credentials")
    if "#" in url:
        raise InvalidSink('the sink\'s URL must not contain a fragment ("#…"), which is never sent')
    if port == 0:
        raise InvalidSink("the sink's port must be from 1 to 65535, got 0")
    if not host:
        raise InvalidSink("the sink's URL must name a host: https://host/path")
    may_be_plain = _check_host(host, allow_loopback=allow_loopback, networks=networks)
    if parts.scheme == "http" and not (allow_http or may_be_plain):
        raise InvalidSink(HTTP_REFUSED)


def check_broker(
    url: BrokerUrl,
    role: broker_url.Role,
    *,
    allow_loopback: bool = False,
    allow_plain: bool = False,
    networks: Sequence[Network] = (),
) -> None:
    """Raises `InvalidSink` unless a broker may be connected to; names are not resolved."""
    may_be_plain = _check_host(url.host, allow_loopback=allow_loopback, networks=networks)
    if not (url.is_secure or allow_plain or may_be_plain):
        secure = broker_url.SECURE[url.kind]
        raise InvalidSink(f"the {role}'s URL must begin with {secure}://, got plain {url.scheme}")


def _check_host(host: str, *, allow_loopback: bool, networks: Sequence[Network]) -> bool:
    """Returns whether a host may be reached without TLS; raises `InvalidSink` if it must not be reached."""
    literal = literal_address(host)
    is_loopback = _is_loopback_name(host) if literal is None else _is_loopback(literal)
    if literal is not None:
        reason = refusal(literal, allow_loopback=allow_loopback, networks=networks)
        if reason is not None:
            raise InvalidSink(reason)
    elif is_loopback:
        if not (allow_loopback or any(is_within(address, networks) for address in _LOOPBACKS)):
            raise InvalidSink(LOOPBACK_REFUSED)
    else:
        _check_name(host)
    # Where a name leads is checked at every connection (`plain_refusal`).
    is_inside = bool(networks) and (literal is None or is_within(literal, networks))
    return is_loopback or is_inside


def _targets(url: str, scheme: str) -> list[str]:
    """Returns the URLs inside a `cloudevents:` or `soap:` URL."""
    if scheme == "cloudevents":
        return [cloudevents.SinkAddress.parse(url).to]
    from edn.formats.soap.address import SoapAddress  # imports lxml, which few sinks need

    address = SoapAddress.parse(url)
    return [one.address for one in (address.sink, address.end) if one is not None]


def mail_address(url: str) -> str:
    """Returns the mailbox of a `mailto:` URL without `?…`; raises `InvalidSink`."""
    mailbox = unquote(url.partition(":")[2])
    local = mailbox.partition("@")[0]
    if not _MAILBOX.match(mailbox) or local.startswith(".") or local.endswith(".") or ".." in mailbox:
        raise InvalidSink("the sink's mail address must have the form mailto:name@example.org")
    return mailbox


def redacted(url: str) -> str:
    """Describes a sink for the log: a digest replaces path, query and mailbox, which may contain secrets.

    The digest is the beginning of the URL's SHA-256 and distinguishes sinks of one host.
    """
    digest = hashlib.sha256(url.encode("utf-8", "replace")).hexdigest()[:8]
    scheme, _, rest = url.partition(":")
    if scheme == "mailto":
        return f"mailto:…@{rest.rpartition('@')[2][:253]} {digest}"
    try:
        if scheme == "cloudevents":
            return f"cloudevents:{redacted(cloudevents.SinkAddress.parse(url).to)}"
        if scheme == "consent":
            return f"consent:{redacted(rest)}"
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
        if (scheme in ("http", "https") or scheme in broker_url.SCHEMES) and parts.hostname:
            return f"{scheme}://{parts.hostname[:253]}{port}/… {digest}"
    except (ValueError, InvalidSink):
        pass
    return f"{scheme[:20]}:… {digest}"


def without_password(url: str) -> str:
    """Returns the URL of a sink for its subscriber, without the password of a broker."""
    if not url.startswith(f"{cloudevents.SCHEME}:"):
        return broker_url.masked(url)
    address = cloudevents.SinkAddress.parse(url)
    return replace(address, to=broker_url.masked(address.to)).url()


def extension(scheme: str) -> Any:
    """Loads the entry point of a sink type for another scheme, or None."""
    found = _extensions().get(scheme)
    return None if found is None else found.load()


@functools.cache  # without a parameter: subscribers can send any number of schemes
def _extensions() -> dict[str, EntryPoint]:
    return {point.name: point for point in reversed(entry_points(group="edn.sinks"))}


def literal_address(host: str) -> Address | None:
    """Returns the address that `getaddrinfo` reads in a host such as 127.1 or 0x7f000001, or None."""
    bare = host.removesuffix(".") if ":" not in host else host
    if "%" in bare:
        raise InvalidSink("the sink's host must not contain '%': neither zones nor escapes are allowed")
    try:
        return ipaddress.ip_address(bare)
    except ValueError:
        pass
    if all(_NUMBER.match(part) for part in bare.split(".")):
        try:
            return ipaddress.IPv4Address(socket.inet_aton(bare))
        except OSError:
            pass
    return None


def address_allowed(
    address: str | Address, *, allow_loopback: bool = False, networks: Sequence[Network] = ()
) -> bool:
    """Whether a resolved address may be connected to."""
    return refusal(address, allow_loopback=allow_loopback, networks=networks) is None


def refusal(
    address: str | Address, *, allow_loopback: bool = False, networks: Sequence[Network] = ()
) -> str | None:
    """Returns the reason why an address must not be connected to, or None."""
    if isinstance(address, str):
        # A link-local address has a scope ("%eth0") and is refused, unless its network is allowed.
        address = ipaddress.ip_address(address.partition("%")[0])
    if networks and is_within(address, networks):
        return None
    if _is_loopback(address):
        return None if allow_loopback else LOOPBACK_REFUSED
    for inner in (address, *_embedded(address)):
        if not inner.is_global or inner.is_multicast or any(inner in net for net in _DENIED):
            return f"the sink's address must be public or allowed by --allow-sink-network, got {address}"
    return None


def plain_refusal(address: str | Address, networks: Sequence[Network], scheme: str = "http") -> str | None:
    """Returns the reason why an address must not be spoken with without TLS, or None."""
    if isinstance(address, str):
        address = ipaddress.ip_address(address.partition("%")[0])
    if is_within(address, networks) or _is_loopback(address):
        return None
    return f"plain {scheme} is allowed inside --allow-sink-network only, got {address}"


def is_within(address: Address, networks: Sequence[Network]) -> bool:
    """Whether an address lies in one of the networks; multicast and unspecified addresses never do."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_multicast or address.is_unspecified:
        return False
    return any(address in network for network in networks)


def _is_loopback(address: Address) -> bool:
    """Whether an address is loopback, also IPv4-mapped; other embedded loopback addresses are refused."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _embedded(address: Address) -> list[Address]:
    """Returns the IPv4 addresses inside an IPv6 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    found: list[Address] = []
    if address.ipv4_mapped is not None:
        found.append(address.ipv4_mapped)
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found.extend(address.teredo)
    if address in _NAT64 or address in _COMPATIBLE:
        found.append(low)
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        found.append(low)
    return found


def _is_loopback_name(host: str) -> bool:
    name = host.removesuffix(".").lower()
    return name in _LOOPBACK_NAMES or name.endswith((".localhost", ".localhost.localdomain"))


def _check_name(host: str) -> None:
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(_LABEL.match(label) for label in labels):
        raise InvalidSink(f'the sink\'s host must be a host name, got "{host[:80]}"')
    if _NUMBER.match(labels[-1]):
        raise InvalidSink(f'the sink\'s host must be a name or an address, got "{host}"')
