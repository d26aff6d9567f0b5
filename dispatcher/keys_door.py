"""The routes of API keys: made, listed, revoked.

An administrator has those of their own tenant, the operator all.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from dispatcher.access import Need, Who, needs
from dispatcher.bodies import Body, Expires, Name
from dispatcher.expiry import parse_expires
from dispatcher.keys import Key, Keys, Quota, Scope
from edn.asgi import StrictRoute
from edn.coordinates import rfc3339
from edn.errors import Forbidden

_Rate = Annotated[float, Field(gt=0, le=1e9, strict=False)]
_Count = Annotated[int, Field(ge=0, le=1 << 53)]


class QuotaBody(Body):
    """What a key may use up; what is left out has no limit."""

    requests_per_second: _Rate | None = Field(None, description="Calls of any kind, on the average.")
    events_per_second: _Rate | None = Field(None, description="Events published, on the average.")
    subscriptions: _Count | None = Field(None, description="That its tenant has at any time.")
    predicates: _Count | None = Field(
        None, description="Attributes that the filters of its tenant's subscriptions constrain, all together."
    )
    body: _Count | None = Field(None, description="Bytes of one body.")


class KeyBody(Body):
    name: Name = Field(description="Whose it is; the default owner of subscriptions made with it.")
    tenant: str = Field("", max_length=64, description="Whose topics it sees; empty is the operator.")
    scopes: list[Literal["publish", "subscribe", "admin"]] = Field(min_length=1, max_length=3)
    expires: Expires = None
    quota: QuotaBody = Field(default_factory=lambda: QuotaBody.model_validate({}))


class KeyView(BaseModel):
    id: str
    name: str
    tenant: str
    scopes: list[str]
    created: str
    expires: str | None
    quota: dict[str, float]
    #: the whole of it: only in the answer to the request that made it
    key: str | None = None


class KeyList(BaseModel):
    keys: list[KeyView]


def _view(key: Key, token: str | None = None) -> dict[str, Any]:
    fields = {name: getattr(key.quota, name) for name in Quota.__struct_fields__}
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "scopes": sorted(key.scopes),
        "created": rfc3339(key.created),
        "expires": None if key.expires is None else rfc3339(key.expires),
        "quota": {name: value for name, value in fields.items() if value is not None},
        **({} if token is None else {"key": token}),
    }


def routes(keys: Keys) -> APIRouter:
    router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=StrictRoute)

    @router.post("", status_code=201, response_model=KeyView, response_model_exclude_unset=True)
    @needs(Need.ADMIN)
    async def create_key(body: KeyBody, who: Who, response: Response) -> Any:
        """Make a key. The answer shows it; nothing shows it again."""
        if not who.operates and body.tenant != who.tenant:
            raise Forbidden(f'a key of tenant "{who.tenant}" makes keys of that tenant only')
        expires = None if body.expires is None else parse_expires(body.expires, keys.now())
        key, token = await keys.create(
            name=body.name,
            tenant=body.tenant,
            scopes=frozenset(map(Scope, body.scopes)),
            expires=expires,
            quota=Quota(**body.quota.model_dump()),
        )
        response.headers["location"] = f"/v1/keys/{key.id}"
        response.headers["cache-control"] = "no-store"
        return _view(key, token)

    @router.get("", response_model=KeyList, response_model_exclude_unset=True)
    @needs(Need.ADMIN)
    async def list_keys(who: Who, tenant: Annotated[str | None, Query(max_length=64)] = None) -> Any:
        """All of them, without their secret parts; the operator may ask for one tenant's."""
        return {"keys": [_view(key) for key in keys.all(tenant if who.operates else who.tenant)]}

    @router.get("/{id}", response_model=KeyView, response_model_exclude_unset=True)
    @needs(Need.ADMIN)
    async def get_key(id: str, who: Who) -> Any:
        return _view(keys.get(id, None if who.operates else who.tenant))

    @router.delete("/{id}", status_code=204)
    @needs(Need.ADMIN)
    async def revoke_key(id: str, who: Who) -> None:
        """From the answer on it opens nothing."""
        await keys.revoke(id, None if who.operates else who.tenant)

    return router
