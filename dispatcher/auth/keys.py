"""API keys: made here, shown once, kept as digests; who they stand for, and what they may do.

A key reads `edn_<id>_<secret>`: the id is public and names the key in listings, logs and the audit; of the
whole only the SHA-256 is kept, which is enough for 256 random bits. All keys are in memory, so that asking
costs no disk; where there are several dispatchers they learn of each other's (see `store.change_feed`).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Callable

from dispatcher.store import api_keys, change_feed
from dispatcher.store.api_keys import Key as Key
from dispatcher.store.api_keys import Pool as Pool
from dispatcher.store.api_keys import Quota as Quota
from dispatcher.store.api_keys import Scope as Scope
from dispatcher.store.change_feed import Kind
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from edn.errors import InvalidInput, NotFound

_TENANT = re.compile(r"[A-Za-z0-9_-]{0,64}\Z")


def identifier(token: bytes) -> str:
    """The public part of what may be a key."""
    parts = token.split(b"_", 2)
    return parts[1].decode("latin-1") if len(parts) == 3 and parts[0] == b"edn" else ""


def check_tenant(name: str) -> None:
    if not _TENANT.match(name):
        raise InvalidInput(
            f'tenant "{name[:80]}": up to 64 letters, digits, "_" and "-"; none for the operator',
            pointer="/tenant",
        )


class Keys:
    """All keys by id; event loop only."""

    def __init__(self, log: Log) -> None:
        self._log = log
        #: an expired key is refused by the best guess of the time: that ends nothing that cannot begin again
        self.now: Callable[[], int] = log.estimate
        self._by_id: dict[str, Key] = log.load(api_keys.all_keys)
        self._reloading = asyncio.Lock()

    async def reload(self) -> None:
        """Read all of them again, one call after another: the last one has seen every commit before it."""
        async with self._reloading:
            self._by_id = await self._log.reading(api_keys.all_keys)

    def find(self, id: str) -> Key | None:
        return self._by_id.get(id)

    def get(self, id: str, tenant: str | None = None) -> Key:
        """A key by its id, of a tenant or of any; raises `NotFound`."""
        key = self._by_id.get(id)
        if key is None or (tenant is not None and key.tenant != tenant):
            raise NotFound(f'no key "{id[:80]}"')
        return key

    def all(self, tenant: str | None = None) -> list[Key]:
        """In the order in which they were made; of one tenant, or of all."""
        found = [key for key in self._by_id.values() if tenant is None or key.tenant == tenant]
        return sorted(found, key=lambda key: (key.created, key.id))

    async def create(
        self,
        *,
        name: str,
        tenant: str,
        scopes: frozenset[Scope],
        expires: int | None = None,
        quota: Quota | None = None,
    ) -> tuple[Key, str]:
        """A new key, and the whole of it, which is known to nobody afterwards but to whoever is told now."""
        check_tenant(tenant)
        id = secrets.token_hex(6)
        token = f"edn_{id}_{secrets.token_urlsafe(32)}"
        digest = hashlib.sha256(token.encode()).digest()
        key = Key(id, digest, name, tenant, scopes, self._log.estimate(), expires, quota or Quota())

        def operation(transaction: Transaction) -> None:
            api_keys.insert(transaction, key)
            change_feed.note(transaction, Kind.KEY, key.id)

        await self._log.submit(operation)
        await self.reload()
        return key, token

    async def revoke(self, id: str, tenant: str | None = None) -> None:
        """From the answer on it opens nothing."""
        self.get(id, tenant)

        def operation(transaction: Transaction) -> None:
            if not api_keys.delete(transaction, id):
                raise NotFound(f'no key "{id[:80]}"')
            change_feed.note(transaction, Kind.KEY, id, gone=transaction.time)

        await self._log.submit(operation)
        await self.reload()
