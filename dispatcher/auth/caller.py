"""The needs that routes declare, and the caller of a request, who has the rights for them or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from dispatcher.auth.keys import Quota, Scope
from edn.errors import Forbidden

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


class Need(StrEnum):
    PUBLIC = "public"
    KEY = "key"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"
    METRICS = "metrics"
    OPERATOR = "operator"
    NETWORK = "network"


def needs(need: Need) -> Callable[[_Endpoint], _Endpoint]:
    """Declare what a route's endpoint needs; below the router's decorator."""

    def mark(endpoint: _Endpoint) -> _Endpoint:
        endpoint.edn_need = need  # type: ignore[attr-defined]  # functions take attributes
        return endpoint

    return mark


def declared(route: Any) -> Need | None:
    """Return the need that a route, or a mounted app, declares."""
    for holder in (getattr(route, "endpoint", None), getattr(route, "app", None)):
        found = getattr(holder, "edn_need", None)
        if found is not None:
            return Need(found)
    return None


_NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: what a key stands for."""

    #: of the key; empty for the network's own secret, and where no keys are asked for
    key: str
    #: default owner of subscriptions
    name: str
    tenant: str
    scopes: frozenset[Scope]
    quota: Quota = _NO_QUOTA
    #: of the key, microseconds since 1970; None is never
    expires: int | None = None

    @property
    def operates(self) -> bool:
        return not self.tenant and Scope.ADMIN in self.scopes

    def may(self, need: Need) -> bool:
        if need is Need.PUBLIC:
            return True
        if need is Need.KEY:
            return bool(self.scopes - {Scope.METRICS})
        if need is Need.OPERATOR:
            return self.operates
        if need is Need.METRICS:
            return self.operates or (not self.tenant and Scope.METRICS in self.scopes)
        return need is not Need.NETWORK and (Scope.ADMIN in self.scopes or need.value in self.scopes)

    def require(self, need: Need) -> None:
        """For routes whose need depends on the body."""
        if not self.may(need):
            raise Forbidden(f"this call needs {_described(need)}; the key has {_listed(self.scopes)}")


#: where no keys are asked for, everybody
EVERYBODY = Caller("", "anonymous", "", frozenset(Scope))
#: whoever holds the network's secret
NETWORK = Caller("", "network", "", frozenset(Scope))


def _described(need: Need) -> str:
    if need is Need.OPERATOR:
        return "an operator's key: scope admin, no tenant"
    if need is Need.NETWORK:
        return "the network's own secret"
    return f"the scope {need.value}"


def _listed(scopes: frozenset[Scope]) -> str:
    return ", ".join(sorted(scopes)) or "none"
