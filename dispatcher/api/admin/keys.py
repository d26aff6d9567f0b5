"""Routes of API keys: create, list, revoke. Administrators manage keys of their tenant, the operator all."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from dispatcher.api.bodies import Body, Expires, Name, Who
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.auth.keys import Key, Keys, Quota, Scope
from dispatcher.auth.quotas import STREAMS
from dispatcher.store import directory
from dispatcher.store.event_log import Log
from dispatcher.subscriptions.expiry import parse_expires
from dispatcher.subscriptions.topics import Topics
from edn.api import keys as api
from edn.api.document import document
from edn.api.fields import fill
from edn.errors import Forbidden, InvalidInput
from edn.http.asgi import StrictRoute
from edn.model.coordinates import rfc3339

#: maximum length of a chain of keys that were created with each other and have quotas
MAX_PARENTS = 8

_Rate = Annotated[float, Field(gt=0, le=1e9, strict=False)]
_Count = Annotated[int, Field(ge=0, le=1 << 53)]


class QuotaBody(Body):
    """Quotas of a key. Default: the quotas of the key that creates it."""

    requests_per_second: _Rate | None = Field(None, description="Requests per second, on average.")
    events_per_second: _Rate | None = Field(None, description="Published events per second, on average.")
    subscriptions: _Count | None = Field(None, description="Subscriptions of its tenant.")
    predicates: _Count | None = Field(
        None, description="Comparisons in all filters of its tenant's subscriptions."
    )
    topics: _Count | None = Field(None, description="Topics of its tenant. Default: the network's.")
    attributes: _Count | None = Field(
        None, description="Attributes of all topics of its tenant. Default: the network's."
    )
    members: _Count | None = Field(
        None, description="Members of its tenant's subtree subscriptions. Default: the network's."
    )
    body: _Count | None = Field(None, description="Bytes of one request body.")
    streams: _Count | None = Field(None, description=f"Concurrent streams. Default: {STREAMS}.")
    retained_bytes: _Count | None = Field(None, description="Bytes of its tenant's retained events.")


class KeyBody(Body):
    name: Name = Field(description="Name of the key's owner; default owner of subscriptions.")
    tenant: str | None = Field(
        None,
        max_length=64,
        description="Tenant of the key; empty: the operator. Default: that of the key that creates it.",
    )
    scopes: list[Literal["publish", "subscribe", "admin", "metrics"]] = Field(min_length=1, max_length=4)
    expires: Expires = None
    quota: QuotaBody = Field(default_factory=lambda: QuotaBody.model_validate({}))


def _view(key: Key, token: str | None = None) -> api.Key:
    limits = {name: getattr(key.quota, name) for name in QuotaBody.model_fields}
    return fill(
        api.Key,
        key,
        scopes=sorted(key.scopes),
        created=rfc3339(key.created),
        expires=None if key.expires is None else rfc3339(key.expires),
        quota={name: value for name, value in limits.items() if value is not None},
        key=token,
    )


def _expiry(given: int | None, parent: Caller) -> int | None:
    if given is None:
        return parent.expires
    if parent.expires is not None and given > parent.expires:
        raise Forbidden(
            f"expires must be at most {rfc3339(parent.expires)}, the expiry of the key that creates it, got "
            f"{rfc3339(given)}",
            pointer="/expires",
        )
    return given


def _quota(body: QuotaBody, parent: Caller) -> Quota:
    """Returns the quotas of a new key, which share those of the key that creates it."""
    pools = parent.quota.pooled(parent.key, parent.tenant)
    if len(pools) > MAX_PARENTS:
        raise Forbidden(f"at most {MAX_PARENTS} keys in a row may be created with each other")
    limits = {}
    for name in QuotaBody.model_fields:
        given, most = getattr(body, name), getattr(parent.quota, name)
        if given is not None and most is not None and given > most:
            raise Forbidden(
                f"quota.{name} must be at most {most:g}, the quota of the key that creates it, got {given:g}",
                pointer=f"/quota/{name}",
            )
        limits[name] = most if given is None else given
    return Quota(**limits, pools=pools)


def routes(keys: Keys, topics: Topics, log: Log) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["keys"], route_class=StrictRoute)

    @router.get("/tenants", response_model=document(api.TenantList))
    @needs(Need.OPERATOR)
    async def list_tenants() -> Any:
        """List the tenants that have keys or topics. The operator's own are those of the empty name."""
        named = sorted({key.tenant for key in keys.all(None)} | {topic.tenant for topic in topics.all()})

        async def describe(tenant: str) -> api.Tenant:
            subscriptions, _ = await log.reading(directory.count_of_tenant, tenant)
            return api.Tenant(
                name=tenant,
                keys=len(keys.all(tenant)),
                topics=len(topics.all(tenant)),
                subscriptions=subscriptions,
            )

        return api.TenantList([await describe(tenant) for tenant in named])

    @router.post(
        "/keys", status_code=201, response_model=document(api.Key), response_model_exclude_unset=True
    )
    @needs(Need.ADMIN)
    async def create_key(body: KeyBody, who: Who, response: Response) -> Any:
        """Create a key. Only this response contains the secret."""
        tenant = who.tenant if body.tenant is None else body.tenant
        if not who.is_operator and tenant != who.tenant:
            raise Forbidden(f'tenant must be that of the key, "{who.tenant}", got "{tenant}"')
        scopes = frozenset(map(Scope, body.scopes))
        if Scope.METRICS in scopes and tenant:
            raise InvalidInput(
                "a key with the scope metrics must have no tenant: metrics are those of the whole network",
                pointer="/scopes",
            )
        expires = None if body.expires is None else parse_expires(body.expires, keys.now())
        key, token = await keys.create(
            name=body.name,
            tenant=tenant,
            scopes=scopes,
            expires=_expiry(expires, who),
            quota=_quota(body.quota, who),
        )
        response.headers["location"] = f"/v1/keys/{key.id}"
        response.headers["cache-control"] = "no-store"
        return _view(key, token)

    @router.get("/keys", response_model=document(api.KeyList), response_model_exclude_unset=True)
    @needs(Need.ADMIN)
    async def list_keys(who: Who, tenant: Annotated[str | None, Query(max_length=64)] = None) -> Any:
        """List keys without their secrets; the operator may select a tenant."""
        return api.KeyList([_view(key) for key in keys.all(tenant if who.is_operator else who.tenant)])

    @router.get("/keys/{id}", response_model=document(api.Key), response_model_exclude_unset=True)
    @needs(Need.ADMIN)
    async def get_key(id: str, who: Who) -> Any:
        return _view(keys.get(id, None if who.is_operator else who.tenant))

    @router.delete("/keys/{id}", status_code=204)
    @needs(Need.ADMIN)
    async def revoke_key(id: str, who: Who) -> None:
        """Revoke a key; it is invalid at once."""
        await keys.revoke(id, None if who.is_operator else who.tenant)

    return router
