"""The dispatchers as a server calls them: each by itself to register, any of them for what clients ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx


class Dispatchers:
    """A client each. `request` goes to the one that answered last, and to the next where nobody listens."""

    def __init__(
        self, urls: Sequence[str], secret: str, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.clients = {
            url: httpx.AsyncClient(
                base_url=url,
                headers={"authorization": f"Bearer {secret}"},
                timeout=10.0,
                trust_env=False,
                transport=transport,
            )
            for url in urls
        }
        self._order = list(urls)

    @property
    def current(self) -> str:
        """The address that `request` tries first."""
        return self._order[0]

    async def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Raises what the client raises; `httpx.ConnectError` only if none of them was reached."""
        for left in range(len(self._order) - 1, -1, -1):
            try:
                return await self.clients[self._order[0]].request(method, path, **given)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                self._order.append(self._order.pop(0))
                if not left:
                    raise
        raise AssertionError("there is at least one dispatcher")

    async def close(self) -> None:
        for client in self.clients.values():
            await client.aclose()
