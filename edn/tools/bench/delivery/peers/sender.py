"""Composes, signs and posts notifications: the part that both peers share."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
import uuid
from collections.abc import Sequence
from typing import Any

import aiohttp
import orjson

from edn.tools.bench.delivery.workload import TOPIC

AT_ONCE = 256
ATTEMPT_SECONDS = 15.0
#: longer than a round, so that connections outlive the turns of other systems
KEPT_SECONDS = 600.0

#: id and attributes of an event, and the subscriptions that match it
Entry = tuple[str, dict[str, float], Sequence[int]]


class Sender:
    def __init__(self, urls: Sequence[str], secrets: Sequence[str]) -> None:
        self._urls = urls
        self._keys = [base64.b64decode(secret) for secret in secrets]
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_SECONDS),
            timeout=aiohttp.ClientTimeout(total=ATTEMPT_SECONDS),
            skip_auto_headers=("user-agent", "accept", "accept-encoding"),
        )

    async def close(self) -> None:
        await self._session.close()

    async def post(self, address: int, entries: Sequence[Entry]) -> bool:
        """Posts entries to an address; returns whether it accepted them."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        notifications: list[dict[str, Any]] = [
            {
                "topic": TOPIC,
                "event": {"id": id, "time": now, "attributes": attributes},
                "matches": [{"subscription": f"n{number}"} for number in subscriptions],
            }
            for id, attributes, subscriptions in entries
        ]
        body = orjson.dumps({"notifications": notifications})
        id, timestamp = f"msg_{uuid.uuid4().hex}", str(int(time.time()))
        signed = hmac.digest(self._keys[address], f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
        headers = {
            "content-type": "application/json",
            "webhook-id": id,
            "webhook-timestamp": timestamp,
            "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
        }
        async with self._slots:
            try:
                async with self._session.post(self._urls[address], data=body, headers=headers) as answer:
                    return bool(200 <= answer.status < 300)
            except (aiohttp.ClientError, TimeoutError):
                return False
