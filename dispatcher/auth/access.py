"""Who may do what: the needs that routes declare, and the guard that holds every call against them.

Theory of operation
-------------------
A route says what it needs with `@needs(Need.…)` on its endpoint. The guard stands before the routes: it finds
the one that a request is for, looks at the request's key, and lets it pass, or refuses it before a byte of
its body is read. A route that declares nothing needs the operator: forgetting is safe, and a test finds it.

| need        | who                                                                                         |
|---|---|
| `PUBLIC`    | anybody                                                                                     |
| `KEY`       | any key but one for metrics only; also every path that there is no route for                |
| `PUBLISH`, `SUBSCRIBE`, `ADMIN` | a key with that scope; `admin` has the other two                        |
| `METRICS`   | a key with the scope `metrics`, which opens nothing else, or the operator                   |
| `OPERATOR`  | `admin` of the operator's own tenant, whose name is empty                                   |
| `NETWORK`   | the network's own processes, by its secret                                                  |

Whoever holds the network's secret is an operator, too: that is how the first key is made. A key belongs to a
**tenant**; topics do, and what belongs to them; what another tenant has is not there (404).

`Settings.open` switches this off, but for `NETWORK`: everybody is the operator then. Web pages are not: in
open mode a call must name this machine as its host, and a browser's must come from our own pages (see
`dispatcher.auth.browsers`).

`Guard.require` decides for every interface whether a caller may do something, and at which address. A call
that a client brought to a server carries that client's address and host; see `edn.http.asgi.VIA`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope as Connection

from dispatcher.auth import browsers
from dispatcher.auth.caller import EVERYBODY, NETWORK, Caller, Need, declared
from dispatcher.auth.keys import Keys, identifier
from dispatcher.auth.quotas import Quotas, TenantLimits
from edn.errors import NotFound, Unauthorized
from edn.http.asgi import CLIENT, CLIENT_HOST, VIA

#: where a request's caller is kept in its ASGI scope
_WHO = "edn.caller"
#: marks a call that another dispatcher has passed on; its value is the network's secret
PASSED_ON = "x-edn-passed-on"
_FORWARDED = frozenset(name.encode() for name in (VIA, CLIENT, CLIENT_HOST))


#: answered at the admin address only, where there is one
_ADMINISTRATION = frozenset({Need.ADMIN, Need.OPERATOR, Need.METRICS})


def caller_of(scope: Connection) -> Caller:
    """The caller of the request at hand, as the guard found it."""
    caller: Caller = scope[_WHO]
    return caller


@dataclass(frozen=True, slots=True)
class _Guarded:
    pattern: re.Pattern[str]
    #: None: all
    methods: frozenset[str] | None
    need: Need


def authorization_of(scope: Connection) -> bytes:
    """The Authorization header of a request; empty if there is none."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            found: bytes = value
            return found
    return b""


class Guard:
    """Asked once a request, before anything else is."""

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
        """`hosts`: names, besides loopback's, that clients may call this dispatcher in open mode; `limits`:
        of tenants whose keys name none.
        """
        self._keys = keys
        self._secret = hashlib.sha256(secret.encode()).digest()
        self._open = open
        self._hosts = frozenset(host.lower() for host in hosts)
        self._admin_port = admin_port
        self.quotas = Quotas(limits=limits)
        self._routes: Callable[[], Iterable[Any]] = tuple
        self._guarded: list[_Guarded] | None = None

    def watch(self, routes: Callable[[], Iterable[Any]]) -> None:
        """Stand before these; `routes` is called at the first request, when all are mounted."""
        self._routes, self._guarded = routes, None

    def _learn(self) -> list[_Guarded]:
        self._guarded = [
            _Guarded(route.path_regex, None if route.methods is None else frozenset(route.methods), need)
            for route in self._routes()
            for need in [declared(route) or Need.OPERATOR]
        ]
        return self._guarded

    def admit(self, scope: Connection, *, anywhere: bool = False) -> Caller:
        """Let a request pass, or raise `Unauthorized`, `Forbidden`, `NotFound` or `Overloaded`.

        `anywhere`: whatever the address that it came to.
        """
        need = self._need(scope["path"], scope.get("method"))
        self._restore_client(scope)
        authorization = authorization_of(scope)
        if need is Need.NETWORK:
            self.check_network(authorization)
            caller = NETWORK
        else:
            self.check_browser(scope, need)
            caller = self._caller(need, authorization)
            caller.require(need) if anywhere else self.require(caller, need, scope)
        self.quotas.request(caller)
        scope[_WHO] = caller
        return caller

    def require(self, caller: Caller, need: Need, scope: Connection) -> None:
        """Raise unless this caller may do something that needs this, at the address that it came to."""
        caller.require(need)
        if need in _ADMINISTRATION and self._elsewhere(scope):
            where = f"port {self._admin_port} of this dispatcher"
            raise NotFound(f"calls that administer are answered at the admin address only: {where}")

    def check_browser(self, scope: Connection, need: Need) -> None:
        """Raise if a web page that is not ours makes this call."""
        if not self._passed_on(scope):  # the dispatcher that it came to has checked it
            browsers.check(scope, open=self._open, public=need is Need.PUBLIC, hosts=self._hosts)

    def is_valid(self, caller: Caller) -> bool:
        """Whether the key of an earlier call still opens anything: for answers that go on for long."""
        if not caller.key:
            return True
        expired = caller.expires is not None and caller.expires <= self._keys.now()
        return not expired and self._keys.find(caller.key) is not None

    def _restore_client(self, scope: Connection) -> None:
        """Put the client's own address and host into a call that a server passed on."""
        given = {name: value for name, value in scope["headers"] if name in _FORWARDED}
        if not self._same_secret(given.get(VIA.encode(), b"")):
            return
        client = given.get(CLIENT.encode(), b"").decode("latin-1")
        scope["client"] = (client, 0) if client else None
        kept = [(name, value) for name, value in scope["headers"] if name != b"host"]
        scope["headers"] = [*kept, (b"host", given.get(CLIENT_HOST.encode(), b""))]

    def _caller(self, need: Need, authorization: bytes) -> Caller:
        if self._open:
            return EVERYBODY
        if need is Need.PUBLIC:
            return Caller("", "anonymous", "", frozenset())
        return self.identify(authorization)

    def _need(self, path: str, method: str | None) -> Need:
        found = Need.KEY
        for guarded in self._guarded if self._guarded is not None else self._learn():
            if guarded.pattern.match(path):
                if guarded.methods is None or method in guarded.methods:
                    return guarded.need
                if guarded.need is Need.PUBLIC:
                    found = Need.PUBLIC  # the wrong method for a path that anybody may know of
        return found

    def _elsewhere(self, scope: Connection) -> bool:
        """Whether a request came to the address that administration is not answered at."""
        if self._admin_port is None:
            return False
        server = scope.get("server")
        if server is not None and server[1] == self._admin_port:
            return False
        return not self._passed_on(scope)

    def _passed_on(self, scope: Connection) -> bool:
        mark = PASSED_ON.encode()
        return any(name == mark and self._same_secret(value) for name, value in scope["headers"])

    def identify(self, authorization: bytes) -> Caller:
        """The caller of an Authorization header; raises `Unauthorized`."""
        if self._open:
            return EVERYBODY
        token = _token(authorization)
        if not token:
            raise Unauthorized(
                "a key is wanted: send Authorization: Bearer <key>; `edn key create` makes one"
            )
        digest = hashlib.sha256(token).digest()
        if hmac.compare_digest(digest, self._secret):
            return NETWORK
        # Found by its public part, compared as a whole: how long that takes says nothing of the secret.
        key = self._keys.find(identifier(token))
        if not hmac.compare_digest(digest, key.digest if key is not None else bytes(32)) or key is None:
            raise Unauthorized("this key is not known here: it is mistyped, or was revoked")
        if key.expires is not None and key.expires <= self._keys.now():
            raise Unauthorized("this key has expired; `edn key create` makes another")
        return Caller(key.id, key.name, key.tenant, key.scopes, key.quota, key.expires)

    def check_network(self, authorization: bytes) -> None:
        """Raise unless the network's own secret is there."""
        if not self._same_secret(_token(authorization)):
            raise Unauthorized(
                "this call is for the network's own processes: send Authorization: Bearer <network secret>"
            )

    def _same_secret(self, token: bytes) -> bool:
        return bool(token) and hmac.compare_digest(hashlib.sha256(token).digest(), self._secret)


def _token(authorization: bytes) -> bytes:
    scheme, _, token = authorization.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""
