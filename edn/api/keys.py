"""API keys."""

from __future__ import annotations

import msgspec

from edn.api.fields import Sometimes


class Key(msgspec.Struct, frozen=True):
    id: str
    name: str
    #: empty: the operator
    tenant: str
    scopes: list[str]
    created: str
    expires: str | None = None
    quota: dict[str, float] = {}
    #: the secret key; only in the answer to the call that created it
    key: Sometimes[str] = None

    def __repr__(self) -> str:
        shown = "" if self.key is None else ", key=…"
        return (
            f"Key(id={self.id!r}, name={self.name!r}, tenant={self.tenant!r}, scopes={self.scopes!r}{shown})"
        )


class KeyList(msgspec.Struct, frozen=True):
    keys: list[Key]


class Tenant(msgspec.Struct, frozen=True):
    #: empty: the operator
    name: str
    keys: int
    topics: int
    subscriptions: int


class TenantList(msgspec.Struct, frozen=True):
    tenants: list[Tenant]
