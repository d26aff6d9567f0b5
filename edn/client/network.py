"""The calls about the network itself: its processes, precision, keys and health; as in `edn.client.calls`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from edn.api.keys import Key, KeyList
from edn.api.routes import Binding, Routes
from edn.api.servers import Clock, Dispatcher, DispatcherList, Server, ServerList
from edn.api.tuning import Tuning
from edn.client.conversation import Call, reading
from edn.client.encoding import ExpiresLike, encode, expiry, given


class Health(msgspec.Struct, frozen=True):
    #: False: it runs, but cannot accept work yet, or no more
    ready: bool
    #: as the network describes itself
    detail: dict[str, Any] = {}


def servers() -> Call[list[Server]]:
    """The servers and how they are."""
    read = reading(ServerList)

    def with_ratio(response: httpx.Response) -> list[Server]:
        answer = read(response)
        if not answer.published:
            return answer.servers
        return [
            msgspec.structs.replace(server, hit_ratio=server.forwarded / answer.published)
            if server.forwarded is not None and server.hit_ratio is None
            else server
            for server in answer.servers
        ]

    return Call(method="GET", path="/v1/servers", read=with_ratio)


def dispatchers() -> Call[list[Dispatcher]]:
    """The dispatchers as the one that is asked sees them, itself first."""
    read = reading(DispatcherList)
    return Call(method="GET", path="/v1/dispatchers", read=lambda response: read(response).dispatchers)


def routes(name: str | None = None) -> Call[Routes]:
    """The routing entries, a topic and a server each, and what is bound to names; all, or those in a name."""
    return Call(method="GET", path="/v1/routes", query=given(name=name), read=reading(Routes))


def bind_route(
    name: str, *, servers: Iterable[str] | None = None, engine: str | None = None
) -> Call[Binding]:
    """Bind a topic's name or a subtree to servers that may host its subscriptions, a matcher, or both."""
    body = {"servers": None if servers is None else list(servers), "engine": engine}
    return Call(method="PUT", path=_route_path(name), body=encode(body), read=reading(Binding))


def unbind_route(name: str) -> Call[None]:
    """Take away what is bound to a name."""
    return Call(method="DELETE", path=_route_path(name), read=lambda _: None)


def clock() -> Call[Clock]:
    """Show whether a wall clock of the network has jumped, and when it will be trusted."""
    return Call(method="GET", path="/v1/clock", read=reading(Clock))


def confirm_clock() -> Call[Clock]:
    """Trust the wall clocks of the dispatcher and of all servers now."""
    return Call(method="POST", path="/v1/clock/confirm", read=reading(Clock))


def tuning() -> Call[Tuning]:
    """How the precision of the summaries is chosen, and what was decided lately."""
    return Call(method="GET", path="/v1/tuning", read=reading(Tuning))


def tune(mode: str, *, precision: float | None = None) -> Call[Tuning]:
    """Choose how precision is chosen: "fixed" (at `precision`), "paper" or "model"."""
    body = given(mode=mode, precision=precision)
    return Call(method="PUT", path="/v1/tuning", body=encode(body), read=reading(Tuning))


def survey() -> Call[dict[str, Any]]:
    """The same, with the throughput model's curve over all precisions, measured now; it takes seconds."""
    return Call(method="POST", path="/v1/tuning/survey", read=reading(dict[str, Any]))


def create_key(
    name: str,
    scopes: Iterable[str],
    *,
    tenant: str | None = None,
    expires: ExpiresLike = None,
    quota: Mapping[str, float] | None = None,
) -> Call[Key]:
    """Make an API key with some of the scopes publish, subscribe, admin and metrics.

    Its `key` is shown only here. Without a tenant it belongs to that of the key that makes it; it cannot have
    more than that key has.
    """
    limits = dict(quota or {})
    body = given(name=name, scopes=list(scopes), quota=limits, tenant=tenant, expires=expiry(expires))
    # A second one would be another key, and nobody would know of the first.
    return Call(method="POST", path="/v1/keys", body=encode(body), read=reading(Key), repeatable=False)


def keys(*, tenant: str | None = None) -> Call[list[Key]]:
    """All API keys that the caller may know of, without their secret parts."""
    listing = reading(KeyList)
    query = given(tenant=tenant)
    return Call(method="GET", path="/v1/keys", query=query, read=lambda response: listing(response).keys)


def revoke_key(id: str) -> Call[None]:
    """From the answer on the key opens nothing."""
    return Call(method="DELETE", path=f"/v1/keys/{quote(id, safe='')}", read=lambda _: None)


def health() -> Call[Health]:
    """Whether the network can take work; not being ready is an answer, not an error."""

    def read(response: httpx.Response) -> Health:
        try:
            detail = msgspec.json.decode(response.content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            detail = {"detail": response.text[:200]}
        return Health(ready=response.is_success, detail=detail)

    return Call(method="GET", path="/readyz", read=read, understood=frozenset({503}))


def _route_path(name: str) -> str:
    return f"/v1/routes/{quote(name, safe='/*')}"
