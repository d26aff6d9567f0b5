"""Calls of the network itself: servers, dispatchers, routes, clocks, tuning, keys, health."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from edn.api.keys import Key, KeyList, Tenant, TenantList
from edn.api.ownership import Ownership
from edn.api.routes import Binding, Routes
from edn.api.secrets import SealedSecrets
from edn.api.servers import Clock, Dispatcher, DispatcherList, Server, ServerList
from edn.api.tuning import Tuning
from edn.client.conversation import Call, delete, request
from edn.client.encoding import ExpiresLike, drop_none, expiry


class Health(msgspec.Struct, frozen=True):
    #: whether the network accepts work
    ready: bool
    #: the network's description of its state
    detail: dict[str, Any] = {}


def servers() -> Call[list[Server]]:
    """Returns the servers and their state."""
    return request("GET", "/v1/servers", ServerList).then(_with_hit_ratios)


def _with_hit_ratios(found: ServerList) -> list[Server]:
    if not found.published:
        return found.servers
    return [
        msgspec.structs.replace(server, hit_ratio=server.forwarded / found.published)
        if server.forwarded is not None and server.hit_ratio is None
        else server
        for server in found.servers
    ]


def dispatchers() -> Call[list[Dispatcher]]:
    """Returns the dispatchers as seen by the one that answers, which is the first."""
    return request("GET", "/v1/dispatchers", DispatcherList).then(lambda found: found.dispatchers)


def routes(name: str | None = None) -> Call[Routes]:
    """Returns routing entries, one per topic and server, and bindings; all, or those of a name."""
    return request("GET", "/v1/routes", Routes, query=drop_none(name=name))


def bind_route(
    name: str, *, servers: Iterable[str] | None = None, engine: str | None = None
) -> Call[Binding]:
    """Binds a topic or subtree to the servers that may host its subscriptions, to an engine, or to both."""
    body = {"servers": None if servers is None else list(servers), "engine": engine}
    return request("PUT", _route_path(name), Binding, body)


def unbind_route(name: str) -> Call[None]:
    """Removes the binding of a name."""
    return delete(_route_path(name))


def clock() -> Call[Clock]:
    """Returns network time, and which wall clocks are suspect."""
    return request("GET", "/v1/clock", Clock)


def ownership() -> Call[Ownership]:
    """Returns who owns the logs and servers of a network on PostgreSQL."""
    return request("GET", "/v1/ownership", Ownership)


def confirm_clock() -> Call[Clock]:
    """Trusts the wall clocks of the dispatcher and all servers now."""
    return request("POST", "/v1/clock/confirm", Clock)


def secrets() -> Call[SealedSecrets]:
    """Returns which keys the processes have, and how many stored secrets each key has sealed."""
    return request("GET", "/v1/secrets", SealedSecrets)


def reseal_secrets() -> Call[SealedSecrets]:
    """Seals stored secrets with the first key of each process, for some seconds; repeat it until `done`."""
    return request("POST", "/v1/secrets/reseal", SealedSecrets)


def tuning() -> Call[Tuning]:
    """Returns the tuning mode, the precision and the last decisions."""
    return request("GET", "/v1/tuning", Tuning)


def tune(mode: str, *, precision: float | None = None) -> Call[Tuning]:
    """Sets the tuning mode: "fixed" (at `precision`), "paper" or "model"."""
    return request("PUT", "/v1/tuning", Tuning, drop_none(mode=mode, precision=precision))


def survey() -> Call[dict[str, Any]]:
    """Returns the tuning with the throughput curve over all precisions; measuring it takes seconds."""
    return request("POST", "/v1/tuning/survey", dict[str, Any])


def create_key(
    name: str,
    scopes: Iterable[str],
    *,
    tenant: str | None = None,
    expires: ExpiresLike = None,
    quota: Mapping[str, float] | None = None,
) -> Call[Key]:
    """Creates an API key with some of the scopes publish, subscribe, admin and metrics.

    Only this answer contains the secret `key`. The default tenant is that of the key in use; a new key cannot
    have more rights than the key in use.
    """
    limits = dict(quota or {})
    body = drop_none(name=name, scopes=list(scopes), quota=limits, tenant=tenant, expires=expiry(expires))
    # A repeated request would create a second key, and nobody would know the first.
    return request("POST", "/v1/keys", Key, body, is_repeatable=False)


def keys(*, tenant: str | None = None) -> Call[list[Key]]:
    """Returns the API keys that the caller may see, without their secrets."""
    return request("GET", "/v1/keys", KeyList, query=drop_none(tenant=tenant)).then(lambda found: found.keys)


def tenants() -> Call[list[Tenant]]:
    """Returns the tenants that have keys or topics; for operators."""
    return request("GET", "/v1/tenants", TenantList).then(lambda found: found.tenants)


def revoke_key(id: str) -> Call[None]:
    """Revokes an API key; it is invalid when this returns."""
    return delete(f"/v1/keys/{quote(id, safe='')}")


def health() -> Call[Health]:
    """Returns whether the network accepts work; not being ready is not an error."""

    def read(response: httpx.Response) -> Health:
        try:
            detail = msgspec.json.decode(response.content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            detail = {"detail": response.text[:200]}
        return Health(ready=response.is_success, detail=detail)

    return Call(method="GET", path="/readyz", read=read, accepted_statuses=frozenset({503}))


def _route_path(name: str) -> str:
    return f"/v1/routes/{quote(name, safe='/*')}"
