"""The other side of `edn bench noisy`, in processes of its own: sinks, and a publisher of noise.

    python -m edn.tools.bench.noisy_peer sinks             prints its URL;  ends with its standard input
    python -m edn.tools.bench.noisy_peer noise FILE        publishes one body again and again; ends likewise
    python -m edn.tools.bench.noisy_peer topics FILE       creates topics, subscribes to all; prints the
    statuses

Sinks answer by the path: /quick at once, /slow after `SLOW_SECONDS`, /never not at all. The first arrival of
each event at a /quick or /slow path is noted with the monotonic clock, which the machine's processes share.
`GET /arrivals` answers the notes since the last such call.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import msgspec

from edn.tools.bench.network import NOWHERE, names_of
from edn.tools.bench.plain import TAKEN, listen, path_of

SLOW_SECONDS = 1.2


class Noise(msgspec.Struct):
    url: str
    key: str
    path: str
    body: dict[str, object]
    #: POSTs a second at most, one after another
    rate: float


class TopicNoise(msgspec.Struct):
    url: str
    key: str
    topics: int
    attributes: int
    subtrees: int
    at_once: int


class Sinks:
    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._arrivals: list[tuple[str, str, float]] = []

    async def take(self, head: bytes, body: bytes) -> bytes | None:
        path = path_of(head)
        if head.startswith(b"GET"):
            arrivals, self._arrivals = msgspec.json.encode(self._arrivals), []
            return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(arrivals), arrivals)
        if path.startswith("/never"):
            return None
        self._note(path, body)
        if path.startswith("/slow"):
            await asyncio.sleep(SLOW_SECONDS)
        return TAKEN

    def _note(self, path: str, content: bytes) -> None:
        now = time.monotonic()
        for entry in msgspec.json.decode(content)["notifications"]:
            key = (path, entry["event"]["id"])
            if key not in self._seen:
                self._seen.add(key)
                self._arrivals.append((*key, now))


async def _sinks() -> None:
    server, url = await listen(Sinks().take)
    print(url, flush=True)  # noqa: T201  the parent reads it
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


async def _noise(noise: Noise) -> None:
    body = msgspec.json.encode(noise.body)
    headers = {"authorization": f"Bearer {noise.key}", "content-type": "application/json"}
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    async with httpx.AsyncClient(base_url=noise.url, timeout=60, headers=headers) as http:
        begin, number = time.monotonic(), 0
        while not ended.done():
            number += 1
            try:
                await http.post(noise.path, content=body)
            except httpx.HTTPError:
                await asyncio.sleep(0.1)  # the network is busy, or gone: that is the noise's to endure
            pause = max(0.0, begin + number / noise.rate - time.monotonic())
            await asyncio.wait([ended], timeout=pause)


async def _topics(noise: TopicNoise) -> None:
    """Create the topics, then subscribe to all of them, `at_once` calls at a time; count the statuses."""
    wide = msgspec.json.encode({"attributes": dict.fromkeys(names_of(noise.attributes), "string")})
    subscription = msgspec.json.encode({"topic": "**", "sink": {"url": f"{NOWHERE}/nobody"}})
    calls = [("POST", "/v1/subscriptions", subscription)] * noise.subtrees
    calls += [("PUT", f"/v1/topics/n{number}", wide) for number in range(noise.topics)]
    statuses: Counter[int] = Counter()
    headers = {"authorization": f"Bearer {noise.key}", "content-type": "application/json"}
    async with httpx.AsyncClient(base_url=noise.url, timeout=60, headers=headers) as http:

        async def work() -> None:
            while calls:
                method, path, body = calls.pop()
                statuses[(await http.request(method, path, content=body)).status_code] += 1

        await asyncio.gather(*(work() for _ in range(noise.at_once)))
    print(msgspec.json.encode(statuses).decode(), flush=True)  # noqa: T201  the parent reads it


if __name__ == "__main__":
    if sys.argv[1] == "sinks":
        asyncio.run(_sinks())
    elif sys.argv[1] == "topics":
        asyncio.run(_topics(msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=TopicNoise)))
    else:
        asyncio.run(_noise(msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=Noise)))
