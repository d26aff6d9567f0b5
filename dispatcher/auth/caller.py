"""Callers and their rights: the needs that routes declare, and whether a caller satisfies them."""

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
    """Declares the need of a route's endpoint; stands below the router's decorator."""

    def mark(endpoint: _Endpoint) -> _Endpoint:
        endpoint.edn_need = need  # type: ignore[attr-defined]  # functions take attributes
        return endpoint

    return mark


def need_of(route: Any) -> Need | None:
    """Returns the need that a route, or a mounted app, declares."""
    for holder in (getattr(route, "endpoint", None), getattr(route, "app", None)):
        found = getattr(holder, "edn_need", None)
        if found is not None:
            return Need(found)
    return None


_NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, as identified by its key."""

    #: id of the key; empty for the network's secret and in open mode
    key: str
    #: default owner of subscriptions
    name: str
    tenant: str
    scopes: frozenset[Scope]
    quota: Quota = _NO_QUOTA
    #: expiry of the key, microseconds since 1970; None is never
    expires: int | None = None

    @property
    def is_operator(self) -> bool:
        return not self.tenant and Scope.ADMIN in self.scopes

    def may(self, need: Need) -> bool:
        if need is Need.PUBLIC:
            return True
        if need is Need.KEY:
            return bool(self.scopes - {Scope.METRICS})
        if need is Need.OPERATOR:
            return self.is_operator
        if need is Need.METRICS:
            return self.is_operator or (not self.tenant and Scope.METRICS in self.scopes)
        return need is not Need.NETWORK and (Scope.ADMIN in self.scopes or need.value in self.scopes)

    def require(self, need: Need) -> None:
        if not self.may(need):
            required = _DESCRIPTIONS.get(need, f"the scope {need.value}")
            granted = ", ".join(sorted(self.scopes)) or "no scope"
            raise Forbidden(f"this call requires {required}; the key has {granted}")


#: the caller of public routes, without a key
ANONYMOUS = Caller("", "anonymous", "", frozenset())
#: the caller of every request in open mode
EVERYBODY = Caller("", "anonymous", "", frozenset(Scope))
#: the caller with the network's secret
NETWORK = Caller("", "network", "", frozenset(Scope))

_DESCRIPTIONS = {
    Need.OPERATOR: "an operator's key (scope admin, no tenant)",
    Need.NETWORK: "the network's secret",
}
