"""Which addresses may be notified: the guard against turning the network on its own neighbours.

A sink's URL is given by whoever subscribes, and the servers call it from inside the operator's network. So
the URL is checked when it is given (`check_url`), and the addresses that its name resolves to are checked
again at every connection (`address_allowed`), because a name may resolve to something else by then.

An address can hide inside another one: IPv4-mapped, IPv4-compatible, NAT64, 6to4, Teredo and ISATAP forms all
lead to an IPv4 address. They are unwrapped, and everything found inside must be public as well.

A `mailto:` address goes to the operator's own relay, so only its form is checked. A `soap:` address holds the
URLs that SOAP messages go to, and these are checked. Other schemes are those of
the entry points `edn.sinks`, which check their own.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import re
import socket
from importlib.metadata import EntryPoint, entry_points
from typing import Any
from urllib.parse import unquote, urlsplit

from edn.errors import InvalidSink
from edn.formats import cloudevents

MAX_URL = 2048

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)\Z")
#: what the system's resolver would read as a number: decimal, octal or hexadecimal
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)\Z")
_LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
#: special ranges that `is_global` of the older Pythons does not know, or calls global
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

LOOPBACK_REFUSED = "loopback addresses are refused unless the network runs with --allow-loopback-sinks"


#: an addr-spec without quotes, comments or literals: what mail is really sent to
_MAILBOX = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@(?=.{1,253}\Z)[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\Z"
)


def check_url(
    url: str, *, allow_loopback: bool = False, allow_http: bool = False, allow_mail: bool = False
) -> None:
    """Raise `InvalidSink` unless the URL may be a sink; names are not resolved here."""
    if len(url) > MAX_URL:
        raise InvalidSink(f"the sink's URL has {len(url)} characters; at most {MAX_URL} are taken")
    if not url.isascii() or any(character <= " " or character in '\x7f\\"<>^`{|}' for character in url):
        raise InvalidSink(
            "the sink's URL holds a character that no URL may hold; percent-encode it, and write the host "
            "in its ASCII form (xn--…)"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidSink(f"the sink's URL cannot be read: {error}") from None
    if parts.scheme == "mailto":
        if not allow_mail:
            raise InvalidSink("mail is refused unless the network runs with --allow-mail-sinks")
        mail_address(url)
        return
    if parts.scheme == "cloudevents":
        posted = cloudevents.SinkAddress.parse(url).to
        if not posted.startswith(("http:", "https:")):
            raise InvalidSink("CloudEvents are posted; https://… is right")
        check_url(posted, allow_loopback=allow_loopback, allow_http=allow_http)
        return
    if parts.scheme == "soap":
        from edn.formats.soap.address import SoapAddress  # it brings lxml, and few addresses need it

        address = SoapAddress.parse(url)
        for target in (address.sink, address.end):
            if target is not None:
                if not target.address.startswith(("http:", "https:")):
                    raise InvalidSink("a SOAP endpoint is reached over http; https://… is right")
                check_url(target.address, allow_loopback=allow_loopback, allow_http=allow_http)
        return
    other = extension(parts.scheme) if parts.scheme not in ("http", "https") else None
    if other is not None:
        other.check(url)
        return
    if parts.scheme not in ("http", "https"):
        raise InvalidSink(f'the sink\'s URL begins with "{parts.scheme}:"; https://… is right')
    if "@" in parts.netloc:
        raise InvalidSink("the sink's URL holds a user name or password; leave it out")
    if "#" in url:
        raise InvalidSink('the sink\'s URL holds a fragment ("#…"), which is never sent; leave it out')
    if port == 0:
        raise InvalidSink("the sink's port is 0; 1 to 65535 are right")
    if not host:
        raise InvalidSink("the sink's URL names no host; https://host/path is right")
    literal = literal_address(host)
    loopback = _is_loopback_name(host) if literal is None else _loopback(literal)
    if literal is not None:
        reason = refusal(literal, allow_loopback=allow_loopback)
        if reason is not None:
            raise InvalidSink(reason)
    elif loopback:
        if not allow_loopback:
            raise InvalidSink(LOOPBACK_REFUSED)
    else:
        _check_name(host)
    if parts.scheme == "http" and not allow_http and not loopback:
        raise InvalidSink("the sink's URL is plain http; https://… is right")


def mail_address(url: str) -> str:
    """The mailbox of a `mailto:` address; subjects and the like (`?…`) are not taken."""
    mailbox = unquote(url.partition(":")[2])
    local = mailbox.partition("@")[0]
    if not _MAILBOX.match(mailbox) or local.startswith(".") or local.endswith(".") or ".." in mailbox:
        raise InvalidSink("the sink's mail address cannot be used; mailto:name@example.org is right")
    return mailbox


def redacted(url: str) -> str:
    """Describe a sink for the log: a digest replaces paths, queries and mailboxes, which may hold secrets.

    The digest is the beginning of the URL's SHA-256, so that two sinks of one host can be told apart.
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
        if scheme in ("http", "https") and parts.hostname:
            return f"{scheme}://{parts.hostname[:253]}{port}/… {digest}"
    except (ValueError, InvalidSink):
        pass
    return f"{scheme[:20]}:… {digest}"


def extension(scheme: str) -> Any:
    """What the entry point of a sink for another scheme gives, or None."""
    found = _extensions().get(scheme)
    return None if found is None else found.load()


@functools.cache  # of what is installed, and not of the schemes that are asked for: these have no end
def _extensions() -> dict[str, EntryPoint]:
    return {point.name: point for point in reversed(entry_points(group="edn.sinks"))}


def literal_address(host: str) -> Address | None:
    """The address that `getaddrinfo` reads in the host itself (127.1, 0x7f000001, 2130706433), or None."""
    bare = host.removesuffix(".") if ":" not in host else host
    if "%" in bare:
        raise InvalidSink("the sink's host holds a '%': neither zones nor escapes are taken there")
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


def address_allowed(address: str | Address, *, allow_loopback: bool = False) -> bool:
    """Whether a resolved address may be connected to."""
    return refusal(address, allow_loopback=allow_loopback) is None


def refusal(address: str | Address, *, allow_loopback: bool = False) -> str | None:
    """Why an address may not be connected to, or None when it may."""
    if isinstance(address, str):
        # A scope ("%eth0") is only ever found on link-local addresses, which are refused anyway.
        address = ipaddress.ip_address(address.partition("%")[0])
    if _loopback(address):
        return None if allow_loopback else LOOPBACK_REFUSED
    for inner in (address, *_hidden(address)):
        if not inner.is_global or inner.is_multicast or any(inner in net for net in _DENIED):
            return f"the address {address} is not public; a sink must be reachable from the public network"
    return None


def _loopback(address: Address) -> bool:
    """Loopback itself, or as an IPv4-mapped address; other disguises of it are never what anybody means."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _hidden(address: Address) -> list[Address]:
    """The IPv4 addresses that an IPv6 address leads to."""
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
        raise InvalidSink(f'the sink\'s host "{host[:80]}" is no host name')
    if _NUMBER.match(labels[-1]):
        raise InvalidSink(f'the sink\'s host "{host}" is neither a name nor an address')
