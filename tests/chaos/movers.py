"""An operator who never leaves well alone: subscriptions are moved from server to server all the time."""

from __future__ import annotations

import asyncio
import random

import httpx

#: subscriptions of one repartition
_MOST = 40
#: how long one may take before it is cancelled, and the next begins
_PATIENCE = 15.0


class Mover:
    def __init__(self, url: str, servers: list[str], chance: random.Random, ending: asyncio.Event) -> None:
        self._url = url
        self._servers = servers
        self._chance = chance
        self._ending = ending
        #: subscriptions that repartitions say they have moved
        self.moved = 0
        self.repartitions = 0

    async def run(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=10.0, trust_env=False) as http:
            while not self._ending.is_set():
                try:
                    await self._repartition(http)
                except (httpx.HTTPError, KeyError, ValueError):
                    pass  # whoever was asked is being killed; what is running goes on when it is back
                await asyncio.sleep(0.3)

    async def _repartition(self, http: httpx.AsyncClient) -> None:
        await self._end_running(http)
        answer = await http.get("/v1/subscriptions", params={"limit": 1000})
        names = [one["id"] for one in answer.raise_for_status().json()["subscriptions"]]
        chosen = self._chance.sample(names, min(_MOST, len(names)))
        if not chosen:
            return
        made = (await http.post("/v1/repartitions", json={"rate": 200.0})).raise_for_status().json()["id"]
        assignments = {name: self._chance.choice(self._servers) for name in chosen}
        body = {"assignments": assignments}
        (await http.post(f"/v1/repartitions/{made}/assignments", json=body)).raise_for_status()
        (await http.post(f"/v1/repartitions/{made}/start")).raise_for_status()
        self.repartitions += 1
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        while asyncio.get_running_loop().time() < deadline:
            now = (await http.get(f"/v1/repartitions/{made}")).raise_for_status().json()
            if now["state"] != "running":
                self.moved += now["moved"]
                return
            await asyncio.sleep(0.1)

    async def _end_running(self, http: httpx.AsyncClient) -> None:
        listed = (await http.get("/v1/repartitions")).raise_for_status().json()["repartitions"]
        for one in listed:
            if one["state"] == "running":
                await http.post(f"/v1/repartitions/{one['id']}/cancel")
                self.moved += one["moved"]
