"""The other side of `edn bench noisy`, `isolation` and `topics`: sinks and noise in processes of their own.

    python -m edn.tools.bench.noisy_peer sinks      prints its URL; ends with its standard input
    python -m edn.tools.bench.noisy_peer noise      publishes one body again and again; ends likewise
    python -m edn.tools.bench.noisy_peer topics     creates topics, subscribes to all; prints the statuses

`noise` and `topics` read their parameters, a line of JSON, from standard input.

Sinks answer by the path: /quick at once, /slow-1.2 after 1.2 seconds, /never not at all. The first arrival of
each event at a quick or slow path is recorded by the monotonic clock, which is the same for all processes of
a machine. `GET /arrivals` returns the arrivals since the last such call.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
import msgspec

from edn.tools.bench.network import NOWHERE, bearer, names_of
from edn.tools.bench.plain import TAKEN, listen, path_of

#: seconds until all events of a round must have arrived
PATIENCE = 150.0
_JSON = {"content-type": "application/json"}
_PROGRAM = (sys.executable, "-m", "edn.tools.bench.noisy_peer")


class Noise(msgspec.Struct):
    url: str
    key: str
    path: str
    body: dict[str, object]
    #: maximum of POSTs per second, one after another
    rate: float


class TopicNoise(msgspec.Struct):
    url: str
    key: str
    topics: int
    attributes: int
    subtrees: int
    at_once: int


# -- the benchmark's side -----------------------------------------------------------------------------------


@contextmanager
def start_peer(kind: str, parameters: Noise | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process of this module."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([*_PROGRAM, kind], stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    try:
        if parameters is not None:
            process.stdin.write(msgspec.json.encode(parameters) + b"\n")
            process.stdin.flush()
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def make_topics(noise: TopicNoise) -> dict[str, int]:
    """Runs `topics` and returns the number of answers by status."""
    ran = subprocess.run(
        [*_PROGRAM, "topics"], input=msgspec.json.encode(noise) + b"\n", check=True, capture_output=True
    )
    return msgspec.json.decode(ran.stdout, type=dict[str, int])


class Arrivals:
    """Measures the time from publishing to the arrival at sinks."""

    def __init__(self, sinks: subprocess.Popen[bytes]) -> None:
        assert sinks.stdout is not None
        self.url = sinks.stdout.readline().decode().strip()
        self._seen: dict[tuple[str, str], float] = {}

    async def round(
        self,
        http: httpx.AsyncClient,
        topic: str,
        paths: Sequence[str],
        events: int,
        rate: float,
        name: str,
        calls: list[float] | None = None,
    ) -> dict[str, list[float]]:
        """Publishes events at a constant rate; returns the seconds of all arrivals per path.

        `calls` gets the seconds of each publish and of a GET after it.
        """
        published: dict[str, float] = {}
        begin = time.monotonic()
        for number in range(events):
            await asyncio.sleep(max(0.0, begin + number / rate - time.monotonic()))
            id = f"{name}-{number}"
            published[id] = time.monotonic()
            answer = await http.post(f"/v1/topics/{topic}/events", json={"$id": id, "x": number})
            answer.raise_for_status()
            if calls is not None:
                asked = time.monotonic()
                (await http.get(f"/v1/topics/{topic}")).raise_for_status()
                calls += [asked - published[id], time.monotonic() - asked]
        wanted = [(path, id) for path in paths for id in published]
        async with asyncio.timeout(PATIENCE), httpx.AsyncClient(base_url=self.url) as sink:
            while not all(key in self._seen for key in wanted):
                await asyncio.sleep(0.1)
                found = (await sink.get("/arrivals")).json()
                self._seen.update({(path, id): at for path, id, at in found})
        return {path: [self._seen[path, id] - at for id, at in published.items()] for path in paths}


# -- the processes ------------------------------------------------------------------------------------------


class Sinks:
    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._arrivals: list[tuple[str, str, float]] = []

    async def take(self, head: bytes, body: bytes) -> bytes | None:
        kind = path_of(head).split("/")[1]
        if head.startswith(b"GET"):
            arrivals, self._arrivals = msgspec.json.encode(self._arrivals), []
            return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(arrivals), arrivals)
        if kind == "never":
            return None
        self._record(path_of(head), body)
        if kind.startswith("slow-"):
            await asyncio.sleep(float(kind.removeprefix("slow-")))
        return TAKEN

    def _record(self, path: str, content: bytes) -> None:
        now = time.monotonic()
        for entry in msgspec.json.decode(content)["notifications"]:
            key = (path, entry["event"]["id"])
            if key not in self._seen:
                self._seen.add(key)
                self._arrivals.append((*key, now))


async def _sinks() -> None:
    server, url = await listen(Sinks().take)
    print(url, flush=True)  # noqa: T201  the parent reads it
    await asyncio.to_thread(sys.stdin.read)
    server.close()


async def _noise(noise: Noise) -> None:
    body = msgspec.json.encode(noise.body)
    ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    async with bearer(noise.url, noise.key, 60) as http:
        begin, number = time.monotonic(), 0
        while not ended.done():
            number += 1
            try:
                await http.post(noise.path, content=body, headers=_JSON)
            except httpx.HTTPError:
                await asyncio.sleep(0.1)  # the network is overloaded, or has ended
            pause = max(0.0, begin + number / noise.rate - time.monotonic())
            await asyncio.wait([ended], timeout=pause)


async def _topics(noise: TopicNoise) -> None:
    """Creates the topics, then subscribes to all of them, `at_once` calls at a time; counts the statuses."""
    wide = msgspec.json.encode({"attributes": dict.fromkeys(names_of(noise.attributes), "string")})
    subscription = msgspec.json.encode({"topic": "**", "sink": {"url": f"{NOWHERE}/nobody"}})
    calls = [("POST", "/v1/subscriptions", subscription)] * noise.subtrees
    calls += [("PUT", f"/v1/topics/n{number}", wide) for number in range(noise.topics)]
    statuses: Counter[int] = Counter()
    async with bearer(noise.url, noise.key, 60) as http:

        async def work() -> None:
            while calls:
                method, path, body = calls.pop()
                answer = await http.request(method, path, content=body, headers=_JSON)
                statuses[answer.status_code] += 1

        await asyncio.gather(*(work() for _ in range(noise.at_once)))
    print(msgspec.json.encode(statuses).decode(), flush=True)  # noqa: T201  the parent reads it


if __name__ == "__main__":
    if sys.argv[1] == "sinks":
        asyncio.run(_sinks())
    elif sys.argv[1] == "topics":
        asyncio.run(_topics(msgspec.json.decode(sys.stdin.readline(), type=TopicNoise)))
    else:
        asyncio.run(_noise(msgspec.json.decode(sys.stdin.readline(), type=Noise)))
