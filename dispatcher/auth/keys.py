"""API keys: creation, lookup and revocation.

A key has the form `edn_<id>_<secret>`. The id is public and identifies the key in listings, logs and the
audit. Only the SHA-256 of the key is stored, which suffices for 256 random bits; the key itself is shown
once. All keys are in memory, so that a lookup needs no disk access.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections.abc import Callable

from dispatcher.store import api_keys
from dispatcher.store.api_keys import Key as Key
from dispatcher.store.api_keys import Pool as Pool
from dispatcher.store.api_keys import Quota as Quota
from dispatcher.store.api_keys import Scope as Scope
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Kind, Transaction
from edn.errors import InvalidInput, NotFound

#: seconds between two looks for keys of other dispatchers
LEARN_SECONDS = 0.1

_TENANT = re.compile(r"[A-Za-z0-9_-]{0,64}\Z")


def public_id(token: bytes) -> str:
    """Returns the public id in a token, empty if it is not a key."""
    parts = token.split(b"_", 2)
    return parts[1].decode("latin-1") if len(parts) == 3 and parts[0] == b"edn" else ""


class Keys:
    """All keys by id; event loop only."""

    def __init__(self, log: Log) -> None:
        self._log = log
        #: the estimated time suffices to refuse expired keys: a wrong refusal destroys nothing
        self.now: Callable[[], int] = log.estimate
        self._by_id: dict[str, Key] = log.load(api_keys.all_keys)
        self._reloading = asyncio.Lock()
        self._learning = asyncio.Lock()
        self._learned = 0.0

    async def reload(self) -> None:
        """Reads all keys again. Serialized, so that the last reload sees every commit before it."""
        async with self._reloading:
            self._by_id = await self._log.reading(api_keys.all_keys)

    async def learn(self) -> None:
        """Learns keys that other dispatchers have just created.

        One caller at a time, and seldom: anybody can send unknown keys.
        """
        if self._log.shared:
            async with self._learning:
                await asyncio.sleep(max(0.0, self._learned + LEARN_SECONDS - time.monotonic()))
                await self._log.refresh()
                self._learned = time.monotonic()

    def replace(self, keys: dict[str, Key]) -> None:
        """Takes over the keys that another dispatcher has changed."""
        self._by_id = keys

    def find(self, id: str) -> Key | None:
        return self._by_id.get(id)

    def get(self, id: str, tenant: str | None = None) -> Key:
        """Returns a key, of any tenant if `tenant` is None; raises `NotFound`."""
        key = self._by_id.get(id)
        if key is None or (tenant is not None and key.tenant != tenant):
            raise _not_found(id)
        return key

    def all(self, tenant: str | None = None) -> list[Key]:
        """Returns the keys of a tenant, or of all tenants, in the order of creation."""
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
        """Creates a key; returns it and its token, which is not stored."""
        if not _TENANT.match(tenant):
            raise InvalidInput(
                'tenant must be up to 64 letters, digits, "_" and "-" (empty for the operator), got '
                f'"{tenant[:80]}"',
                pointer="/tenant",
            )
        id = secrets.token_hex(6)
        token = f"edn_{id}_{secrets.token_urlsafe(32)}"
        digest = hashlib.sha256(token.encode()).digest()
        key = Key(id, digest, name, tenant, scopes, self._log.estimate(), expires, quota or Quota())

        def operation(transaction: Transaction) -> None:
            api_keys.insert(transaction, key)
            transaction.note(Kind.KEY, key.id)

        await self._log.submit(operation)
        await self.reload()
        return key, token

    async def revoke(self, id: str, tenant: str | None = None) -> None:
        """Revokes a key; it is invalid at all dispatchers once this returns."""
        self.get(id, tenant)

        def operation(transaction: Transaction) -> None:
            if not api_keys.delete(transaction, id):
                raise _not_found(id)
            transaction.note(Kind.KEY, id)

        await self._log.submit(operation)
        await self.reload()
        await self._log.settled()


def _not_found(id: str) -> NotFound:
    return NotFound(f'API key "{id[:80]}" does not exist')
