"""The floor: the least CPU time that a POST costs in one Python process.

A bare uvloop client with one keep-alive connection per address and a fixed number of POSTs in flight, without
storage, matching, retries or order. Four variants: *bare* sends bodies that were composed before, *json*
composes them, *hmac* signs them, *both* does both. Flat out, or with the POSTs of one event at a time at a
rate: then a POST costs more, because the loop sleeps and wakes between events.

As a program it reads its posts as one line of JSON and then a variant, a rate and a number of events (0, 0:
flat out, all) per line, and answers each with one line of JSON.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import hashlib
import hmac
import json
import secrets
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
import uvloop

from edn.arrays import Floats
from edn.tools.bench.delivery.load import Receivers
from edn.tools.bench.delivery.program import program
from edn.tools.bench.delivery.workload import TOPIC, Workload, as_events

VARIANTS = ("bare", "json", "hmac", "both")
IN_FLIGHT = 64
_TIME = "2030-01-31T09:00:00.000000Z"


class Ran(msgspec.Struct):
    """The cost of one run of a variant."""

    posts: int
    seconds: float
    cpu_seconds: float


class _Post(msgspec.Struct, array_like=True):
    address: int
    event: int
    subscriptions: list[int]


class _Plan(msgspec.Struct):
    urls: list[str]
    events: list[dict[str, float]]
    posts: list[_Post]


class Floor:
    """Controls the program."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def run(self, variant: str, rate: float = 0.0, seconds: float = 0.0) -> Ran:
        """Make all POSTs, or for some seconds those of `rate` events per second."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{variant} {rate} {int(rate * seconds)}\n".encode())
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Ran)


@contextmanager
def running_floor(workload: Workload, receivers: Receivers, points: Floats) -> Iterator[Floor]:
    posts = []
    for number, point in enumerate(points):
        found: dict[int, list[int]] = {}
        for subscription in workload.matching(point).tolist():
            found.setdefault(int(workload.owners[subscription]), []).append(subscription)
        posts += [(address, number, subscriptions) for address, subscriptions in found.items()]
    plan = {
        "urls": receivers.urls(workload.addresses, "webhook"),
        "events": as_events(points),
        "posts": posts,
    }
    with program("edn.tools.bench.delivery.floor", settings=plan) as (process, _):
        yield Floor(process)


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.lane: deque[int]
        self.on_answer: Callable[[deque[int]], None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's does not say that it is one

    def data_received(self, data: bytes) -> None:
        if not data.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"the receiver answered {data[:100]!r}")
        self.on_answer(self.lane)


class _Client:
    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._connections: dict[int, _Connection] = {}
        self._keys = [secrets.token_bytes(24) for _ in plan.urls]
        self._bodies = [self._compose(post) for post in plan.posts]
        parts = [urlsplit(url) for url in plan.urls]
        self._heads = [
            f"POST {part.path} HTTP/1.1\r\nhost: {part.netloc}\r\ncontent-type: application/json\r\n".encode()
            for part in parts
        ]
        #: numbers of the POSTs of each event
        self._events: list[list[int]] = [[] for _ in plan.events]
        for number, post in enumerate(plan.posts):
            self._events[post.event].append(number)

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        for address in {post.address for post in self._plan.posts}:
            part = urlsplit(self._plan.urls[address])
            host, port = part.hostname or "", part.port or 80
            _, self._connections[address] = await loop.create_connection(_Connection, host, port)

    async def run(self, variant: str, rate: float, most: int) -> Ran:
        composing, signing = variant in ("json", "both"), variant in ("hmac", "both")
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        posts, bodies, heads, keys = self._plan.posts, self._bodies, self._heads, self._keys
        events = self._events[: most or None]
        connections, left = self._connections, sum(map(len, events))
        count = left

        def send_next(lane: deque[int]) -> None:
            """Send the first POST of a lane; it stays there until it is answered."""
            number = lane[0]
            post = posts[number]
            body = self._compose(post) if composing else bodies[number]
            id, now = b"msg_%d" % number, b"%d" % time.time()
            signature = b""
            if signing:
                signed = hmac.digest(keys[post.address], b"%b.%b.%b" % (id, now, body), hashlib.sha256)
                signature = b"webhook-signature: v1,%b\r\n" % base64.b64encode(signed)
            connections[post.address].lane = lane
            connections[post.address].transport.write(
                b"%bwebhook-id: %b\r\nwebhook-timestamp: %b\r\n%bcontent-length: %d\r\n\r\n%b"
                % (heads[post.address], id, now, signature, len(body), body)
            )

        def on_answer(lane: deque[int]) -> None:
            nonlocal left
            lane.popleft()
            left -= 1
            if lane:
                send_next(lane)
            elif not left:
                ended.set_result(None)

        # An address is in one lane, so that it has one POST in flight.
        lanes: list[deque[int]] = [deque() for _ in range(IN_FLIGHT)]
        for connection in connections.values():
            connection.on_answer = on_answer
        began, cpu = time.monotonic(), time.process_time()
        for event, numbers in enumerate(events):
            if rate:
                await asyncio.sleep(began + event / rate - time.monotonic())
            idle = [lane for lane in lanes if not lane]
            for number in numbers:
                lanes[posts[number].address % IN_FLIGHT].append(number)
            for lane in idle if rate else ():
                if lane:
                    send_next(lane)
        for lane in () if rate else lanes:
            if lane:
                send_next(lane)
        await ended
        return Ran(count, time.monotonic() - began, time.process_time() - cpu)

    def _compose(self, post: _Post) -> bytes:
        event = {"id": str(post.event), "time": _TIME, "attributes": self._plan.events[post.event]}
        matches = [{"subscription": f"n{number}"} for number in post.subscriptions]
        return msgspec.json.encode({"notifications": [{"topic": TOPIC, "event": event, "matches": matches}]})


async def _main() -> None:
    loop = asyncio.get_running_loop()

    def read() -> bytes:
        return sys.stdin.buffer.readline()

    client = _Client(msgspec.json.decode(await loop.run_in_executor(None, read), type=_Plan))
    await client.connect()
    gc.collect()
    gc.freeze()
    say({"ready": True})
    while line := (await loop.run_in_executor(None, read)).decode():
        variant, rate, most = line.split()
        say(msgspec.to_builtins(await client.run(variant, float(rate), int(most))))


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201


if __name__ == "__main__":
    uvloop.run(_main())
