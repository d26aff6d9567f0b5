"""Calls the dispatchers: each to register, any one on behalf of clients."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

from edn.http.control_client import NOT_REACHED, ControlAnswer, Transport, open_client
from edn.runtime.ownership import owned


@owned("loop")
class Dispatchers:
    """Sends a request to the dispatcher that answered last, and to the next one if it is unreachable."""

    def __init__(
        self,
        urls: Sequence[str],
        secret: str,
        transport: Transport | None = None,
        tls: ssl.SSLContext | bool = True,
    ) -> None:
        self.client = open_client(secret, transport, tls)
        self._order = list(urls)

    @property
    def urls(self) -> set[str]:
        return set(self._order)

    def replace(self, urls: Sequence[str]) -> None:
        """Uses other dispatchers from now on."""
        known = [url for url in self._order if url in urls]
        self._order = known + [url for url in urls if url not in known]

    @property
    def current(self) -> str:
        """The URL that `request` tries first."""
        return self._order[0]

    async def request(self, method: str, path: str, *, seconds: float = 10.0, **given: Any) -> ControlAnswer:
        """Raises `CallFailed`; one of `NOT_REACHED` only if no dispatcher was reached."""
        for left in range(len(self._order) - 1, -1, -1):
            try:
                url = f"{self._order[0].rstrip('/')}{path}"
                return await self.client.request(method, url, timeout=seconds, **given)
            except NOT_REACHED:
                self._order.append(self._order.pop(0))
                if not left:
                    raise
        raise AssertionError("the settings name at least one dispatcher")

    async def close(self) -> None:
        await self.client.aclose()
