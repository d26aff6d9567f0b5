"""Refuses requests of web pages from other sites.

A browser sends requests on behalf of any page that a person opens, but never adds a key. So a dispatcher that
requires keys is exposed only through WebSockets of pages that have one. An open dispatcher requires no key:
any page could control it, directly or through a host name that resolves to this machine (DNS rebinding).
Therefore in open mode

- `Host` must be a loopback address, `localhost`, or a name that the operator allows;
- `Origin`, which browsers add to requests that may change something, must equal `Host`;
- a request that a browser marks as cross-site must be a navigation to a public page.

Other clients send none of these headers except `Host`.
"""

from __future__ import annotations

import functools
import ipaddress
from urllib.parse import urlsplit

from starlette.types import Scope

from edn.errors import Forbidden

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_OTHER_SITES = (b"cross-site", b"same-site")


def check(scope: Scope, *, open: bool, public: bool, hosts: frozenset[str]) -> None:
    """Raises `Forbidden` for a request of a foreign page; `public`: the route is public."""
    if not open and scope["type"] != "websocket":
        return
    fields = dict(scope["headers"])
    host = fields.get(b"host", b"").decode("latin-1")
    if open and host and not _is_allowed(host, hosts):
        raise Forbidden(
            "in open mode, Host must be a loopback address, localhost, or a name given with --allowed-hosts, "
            f'got "{host[:80]}"'
        )
    origin = fields.get(b"origin")
    if origin is not None and not _same(origin.decode("latin-1"), host):
        raise Forbidden(f'Origin must be the host "{host[:80]}", got "{origin.decode("latin-1")[:80]}"')
    if open and fields.get(b"sec-fetch-site") in _OTHER_SITES:
        navigates = fields.get(b"sec-fetch-mode") == b"navigate" and scope.get("method") in ("GET", "HEAD")
        if not (public and navigates):
            raise Forbidden("in open mode, pages of other sites must not call this dispatcher")


@functools.lru_cache(1024)
def _is_allowed(host: str, hosts: frozenset[str]) -> bool:
    name, _ = _host_and_port(f"http://{host}")
    if name == "localhost" or name in hosts:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _same(origin: str, host: str) -> bool:
    called = _host_and_port(f"{origin.partition(':')[0]}://{host}")
    return bool(called[0]) and _host_and_port(origin) == called


def _host_and_port(url: str) -> tuple[str, int | None]:
    """Returns host and port of an origin, ("", None) if it has none."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", None
