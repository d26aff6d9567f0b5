"""Tells calls of web pages that are not ours from all others.

A browser sends requests on behalf of any page that a person looks at. A key is never sent along, so a locked
dispatcher has nothing to fear but from WebSockets of pages that were given one. An open dispatcher asks for
no key: there a page could do everything, directly, or under a name of its own that resolves to this machine
(DNS rebinding). So in open mode

- the host that a call names must be a loopback address, `localhost`, or a name that the operator allows;
- an `Origin`, which browsers add to whatever may change something, must be the host that the call names;
- a request that a browser marks as coming from another site must be a navigation to a public page.

Clients that are no browsers send none of these fields but `Host`.
"""

from __future__ import annotations

import functools
import ipaddress
from urllib.parse import urlsplit

from starlette.types import Scope

from edn.errors import Forbidden

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_ELSEWHERE = (b"cross-site", b"same-site")


def check(scope: Scope, *, open: bool, public: bool, hosts: frozenset[str]) -> None:
    """Raise `Forbidden` for what a foreign page asks; `public`: for a route that anybody may read."""
    if not open and scope["type"] != "websocket":
        return
    fields = dict(scope["headers"])
    host = fields.get(b"host", b"").decode("latin-1")
    if open and host and not _is_ours(host, hosts):
        raise Forbidden(
            "in open mode Host must be a loopback address, localhost, or a name given with --allowed-hosts, "
            f'got "{host[:80]}"'
        )
    origin = fields.get(b"origin")
    if origin is not None and not _same(origin.decode("latin-1"), host):
        raise Forbidden(
            f'Origin must be the host that is called, "{host[:80]}", got "{origin.decode("latin-1")[:80]}"'
        )
    if open and fields.get(b"sec-fetch-site") in _ELSEWHERE:
        navigates = fields.get(b"sec-fetch-mode") == b"navigate" and scope.get("method") in ("GET", "HEAD")
        if not (public and navigates):
            raise Forbidden("in open mode pages of other sites must not call this dispatcher")


@functools.lru_cache(1024)
def _is_ours(host: str, hosts: frozenset[str]) -> bool:
    name, _ = _place(f"http://{host}")
    if name == "localhost" or name in hosts:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _same(origin: str, host: str) -> bool:
    called = _place(f"{origin.partition(':')[0]}://{host}")
    return bool(called[0]) and _place(origin) == called


def _place(url: str) -> tuple[str, int | None]:
    """Return host and port of an origin, ("", None) if there are none."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", None
