"""The routes of API keys: made, listed, revoked.

An administrator has those of their own tenant, the operator all.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from dispatcher.api.bodies import Body, Expires, Name
from dispatcher.api.caller import Who
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.auth.keys import Key, Keys, Quota, Scope
from dispatcher.auth.quotas import STREAMS
from dispatcher.subscriptions.expiry import parse_expires
from edn.api import keys as api
from edn.api.document import document
from edn.api.fields import fill
from edn.errors import Forbidden, InvalidInput
from edn.http.asgi import StrictRoute
from edn.model.coordinates import rfc3339

#: keys in a row of which each was made with the one before and has limits
MAKERS = 8

_Rate = Annotated[float, Field(gt=0, le=1e9, strict=False)]
_Count = Annotated[int, Field(ge=0, le=1 << 53)]


class QuotaBody(Body):
    """Limits of a key. A limit that is left out is that of the key that makes it, if any."""

    requests_per_second: _Rate | None = Field(None, description="Calls of any kind, on the average.")
    events_per_second: _Rate | None = Field(None, description="Events published, on the average.")
    subscriptions: _Count | None = Field(None, description="That its tenant has at any time.")
    predicates: _Count | None = Field(
        None, description="Comparisons that the filters of its tenant's subscriptions make, all together."
    )
    topics: _Count | None = Field(
        None, description="That its tenant has at any time; the network's default if there is no limit."
    )
    attributes: _Count | None = Field(
        None, description="Of its tenant's topics, all together; the network's default if there is no limit."
    )
    members: _Count | None = Field(
        None,
        description="Topics that its tenant's subscriptions to subtrees reach, all together; the network's "
        "default if there is no limit.",
    )
    body: _Count | None = Field(None, description="Bytes of one body.")
    streams: _Count | None = Field(
        None, description=f"Streams read at the same time with it; {STREAMS} if there is no limit."
    )
    retained_bytes: _Count | None = Field(
        None, description="Bytes of its tenant's events that stay available to later subscribers."
    )


class KeyBody(Body):
    name: Name = Field(description="Whose it is; the default owner of subscriptions made with it.")
    tenant: str | None = Field(
        None,
        max_length=64,
        description="Whose topics it sees; empty is the operator. Default: that of the key that makes it.",
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


def _expiry(wanted: int | None, maker: Caller) -> int | None:
    """Return when a new key ends: with the key that makes it, or earlier."""
    if wanted is None or maker.expires is None:
        return maker.expires if wanted is None else wanted
    if wanted > maker.expires:
        raise Forbidden(
            f"expires must be at most {rfc3339(maker.expires)}, when the key that makes it ends",
            pointer="/expires",
        )
    return wanted


def _quota(body: QuotaBody, maker: Caller) -> Quota:
    """Return what a new key may use up: as much as the key that makes it, or less, and out of its pools."""
    pools = maker.quota.pooled(maker.key, maker.tenant)
    if len(pools) > MAKERS:
        raise Forbidden(f"at most {MAKERS} keys in a row may each be made with the one before")
    limits = {}
    for name in QuotaBody.model_fields:
        wanted, most = getattr(body, name), getattr(maker.quota, name)
        if wanted is not None and most is not None and wanted > most:
            raise Forbidden(
                f"quota.{name} must be at most {most:g}, as of the key that makes it, got {wanted:g}",
                pointer=f"/quota/{name}",
            )
        limits[name] = most if wanted is None else wanted
    return Quota(**limits, pools=pools)


def routes(keys: Keys) -> APIRouter:
    router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=StrictRoute)

    @router.post("", status_code=201, response_model=document(api.Key), response_model_exclude_unset=True)
    @needs(Need.ADMIN)
    async def create_key(body: KeyBody, who: Who, response: Response) -> Any:
        """Make a key. The answer shows it; nothing shows it again."""
        tenant = who.tenant if body.tenant is None else body.tenant
        if not who.operates and tenant != who.tenant:
            raise Forbidden(f'a key of tenant "{who.tenant}" makes keys of that tenant only')
        scopes = frozenset(map(Scope, body.scopes))
        if Scope.METRICS in scopes and tenant:
            raise InvalidInput(
                "the scope metrics must be of a key without a tenant: metrics are the whole network's",
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

    @router.get("", response_model=document(api.KeyList), response_model_exclude_unset=True)
    @needs(Need.ADMIN)
    async def list_keys(who: Who, tenant: Annotated[str | None, Query(max_length=64)] = None) -> Any:
        """All of them, without their secret parts; the operator may ask for one tenant's."""
        return api.KeyList([_view(key) for key in keys.all(tenant if who.operates else who.tenant)])

    @router.get("/{id}", response_model=document(api.Key), response_model_exclude_unset=True)
    @needs(Need.ADMIN)
    async def get_key(id: str, who: Who) -> Any:
        return _view(keys.get(id, None if who.operates else who.tenant))

    @router.delete("/{id}", status_code=204)
    @needs(Need.ADMIN)
    async def revoke_key(id: str, who: Who) -> None:
        """From the answer on it opens nothing."""
        await keys.revoke(id, None if who.operates else who.tenant)

    return router
