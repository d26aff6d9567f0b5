"""Guards every route: identifies the caller of a request and checks its rights.

Theory of operation
-------------------
A route declares its need with `@needs(Need.…)` on its endpoint. The guard runs before the routes: it finds
the route of a request, identifies the key, and admits or refuses the request before a byte of its body is
read. A route without a declaration needs the operator: a forgotten one is safe, and a test finds it.

| need        | satisfied by                                                                                |
|---|---|
| `PUBLIC`    | anybody                                                                                     |
| `KEY`       | any key except one for metrics only; applies to paths without a route, too                  |
| `PUBLISH`, `SUBSCRIBE`, `ADMIN` | a key with that scope; `admin` includes the other two                   |
| `METRICS`   | a key with the scope `metrics`, which permits nothing else, or the operator                 |
| `OPERATOR`  | `admin` of the operator's own tenant, whose name is empty                                   |
| `NETWORK`   | the network's own processes, by its secret                                                  |

The network's secret also authenticates an operator: that is how the first key is created. Keys and topics
belong to a **tenant**; objects of other tenants do not exist for a caller (404).

`Settings.open` disables these checks, except for `NETWORK`: every caller is the operator. Web pages are not:
in open mode a request must name this machine as its host, and a browser's request must come from our own
pages (`dispatcher.auth.browsers`).

`Guard.require` decides for every interface whether a caller may do something, and at which address. A request
that a server passes on carries the client's address and host (`edn.http.asgi.VIA`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope as Connection

from dispatcher.auth import browsers
from dispatcher.auth.caller import ANONYMOUS, EVERYBODY, NETWORK, Caller, Need, need_of
from dispatcher.auth.keys import Keys, public_id
from dispatcher.auth.quotas import Quotas, TenantLimits
from edn.errors import NotFound, Unauthorized
from edn.http.asgi import CLIENT, CLIENT_HOST, VIA

#: key of the caller in a request's ASGI scope
_CALLER = "edn.caller"
_FORWARDED = frozenset(name.encode() for name in (VIA, CLIENT, CLIENT_HOST))


#: needs of routes that only the admin port serves, if there is one
_ADMINISTRATION = frozenset({Need.ADMIN, Need.OPERATOR, Need.METRICS})


def caller_of(scope: Connection) -> Caller:
    """Returns the caller of a request that the guard has admitted."""
    caller: Caller = scope[_CALLER]
    return caller


@dataclass(frozen=True, slots=True)
class _GuardedRoute:
    pattern: re.Pattern[str]
    #: None: all
    methods: frozenset[str] | None
    need: Need


def authorization_of(scope: Connection) -> bytes:
    """Returns the Authorization header of a request, or an empty one."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            found: bytes = value
            return found
    return b""


class UnknownKey(Unauthorized):
    """The API key does not exist, or another dispatcher has just created it."""


class Guard:
    """Identifies and admits callers, once per request."""

    def __init__(
        self,
        keys: Keys,
        secret: str,
        *,
        open: bool,
        admin_port: int | None = None,
        hosts: Collection[str] = (),
        limits: TenantLimits | None = None,
    ) -> None:
        """`hosts`: names besides loopback's that clients may use in open mode; `limits`: quotas of tenants
        whose keys have none.
        """
        self._keys = keys
        self._secret = hashlib.sha256(secret.encode()).digest()
        self._open = open
        self._hosts = frozenset(host.lower() for host in hosts)
        self._admin_port = admin_port
        self.quotas = Quotas(limits=limits)
        self._guarded: list[_GuardedRoute] = []

    def protect(self, routes: Iterable[Any]) -> None:
        """Guards an app's routes; called when all of them are mounted."""
        self._guarded = [
            _GuardedRoute(
                route.path_regex,
                None if route.methods is None else frozenset(route.methods),
                need_of(route) or Need.OPERATOR,
            )
            for route in routes
        ]

    def admit(self, scope: Connection, *, any_port: bool = False) -> Caller:
        """Admits a request, or raises `Unauthorized`, `Forbidden`, `NotFound` or `Overloaded`.

        `any_port`: do not restrict administration to the admin port.
        """
        need = self._need(scope["path"], scope.get("method"))
        self._restore_client(scope)
        authorization = authorization_of(scope)
        if need is Need.NETWORK:
            self.check_network(authorization)
            caller = NETWORK
        else:
            self.check_browser(scope, need)
            is_anonymous = need is Need.PUBLIC and not self._open
            caller = ANONYMOUS if is_anonymous else self.identify(authorization)
            caller.require(need) if any_port else self.require(caller, need, scope)
        self.quotas.count_request(caller)
        scope[_CALLER] = caller
        return caller

    async def learn_keys(self) -> None:
        """Learns keys that other dispatchers have just created."""
        await self._keys.learn()

    def require(self, caller: Caller, need: Need, scope: Connection) -> None:
        """Raises unless the caller satisfies a need, at the port that received the request."""
        caller.require(need)
        if need in _ADMINISTRATION and not self._is_admin_port(scope):
            raise NotFound(
                f"administrative calls are served at the admin port only: port {self._admin_port} of this "
                "dispatcher"
            )

    def check_browser(self, scope: Connection, need: Need) -> None:
        browsers.check(scope, open=self._open, public=need is Need.PUBLIC, hosts=self._hosts)

    def is_valid(self, caller: Caller) -> bool:
        """Reports whether the key of an earlier request is still valid: for long responses."""
        if not caller.key:
            return True
        expired = caller.expires is not None and caller.expires <= self._keys.now()
        return not expired and self._keys.find(caller.key) is not None

    def _restore_client(self, scope: Connection) -> None:
        """Restores the client's address and host in a request that a server passed on."""
        given = {name: value for name, value in scope["headers"] if name in _FORWARDED}
        if not self._is_secret(given.get(VIA.encode(), b"")):
            return
        client = given.get(CLIENT.encode(), b"").decode("latin-1")
        scope["client"] = (client, 0) if client else None
        others = [(name, value) for name, value in scope["headers"] if name != b"host"]
        scope["headers"] = [*others, (b"host", given.get(CLIENT_HOST.encode(), b""))]

    def _need(self, path: str, method: str | None) -> Need:
        found = Need.KEY
        for route in self._guarded:
            if route.pattern.match(path):
                if route.methods is None or method in route.methods:
                    return route.need
                if route.need is Need.PUBLIC:
                    found = Need.PUBLIC  # the wrong method of a public path
        return found

    def _is_admin_port(self, scope: Connection) -> bool:
        """Reports whether a request may administer at the port that received it."""
        if self._admin_port is None:
            return True
        server = scope.get("server")
        return server is not None and server[1] == self._admin_port

    def identify(self, authorization: bytes) -> Caller:
        """Returns the caller of an Authorization header; raises `Unauthorized`."""
        if self._open:
            return EVERYBODY
        token = _token(authorization)
        if not token:
            raise Unauthorized(
                "an API key is required: send Authorization: Bearer <key>; create one with `edn key create`"
            )
        digest = hashlib.sha256(token).digest()
        if hmac.compare_digest(digest, self._secret):
            return NETWORK
        # Looked up by its public id and compared as a whole, so that timing reveals nothing of the secret.
        key = self._keys.find(public_id(token))
        if not hmac.compare_digest(digest, key.digest if key is not None else bytes(32)) or key is None:
            raise UnknownKey("unknown API key: it is mistyped or was revoked")
        if key.expires is not None and key.expires <= self._keys.now():
            raise Unauthorized("the API key has expired; create another with `edn key create`")
        return Caller(key.id, key.name, key.tenant, key.scopes, key.quota, key.expires)

    def check_network(self, authorization: bytes) -> None:
        if not self._is_secret(_token(authorization)):
            raise Unauthorized(
                "this call is reserved for the network's own processes: send Authorization: Bearer "
                "<network secret>"
            )

    def _is_secret(self, token: bytes) -> bool:
        return bool(token) and hmac.compare_digest(hashlib.sha256(token).digest(), self._secret)


def _token(authorization: bytes) -> bytes:
    scheme, _, token = authorization.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""
