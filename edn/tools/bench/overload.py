"""Twice the capacity: publishers are answered, every accepted event arrives, memory stays bounded.

Three phases on one network: *capacity*, publishing as fast as answers arrive until all is delivered;
*overload*, sending at twice that rate by the clock; *drain*, until nothing waits. Every address must then
have received exactly the accepted events, identified by their offsets.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import numpy as np
import psutil

from edn.client import AsyncClient, NewSubscription
from edn.tools.bench.histogram import Distribution
from edn.tools.bench.network import TOPIC, names_of, network, requests_of
from edn.tools.bench.plain import TAKEN, Answer, every, listen, path_of, publish
from edn.tools.bench.report import Progress, facts

BATCH = 100
CONNECTIONS = 64
ADDRESSES = 5
_EVENT_ID = re.compile(rb'"event":\{"id":"[0-9a-f]{8}-(\d+)"')


@dataclass(slots=True)
class Outcome:
    servers: int
    seconds: float
    capacity_events_per_second: float = 0.0
    offered_events_per_second: float = 0.0
    #: answers by status
    answers: dict[str, int] = field(default_factory=dict)
    #: 429 and 503 without Retry-After
    without_retry_after: int = 0
    #: batches that were late because all connections waited for an answer
    late_batches: int = 0
    accepted: int = 0
    #: over all addresses: accepted and not received, received and not accepted
    missing: int = 0
    unexpected: int = 0
    drain_seconds: float = 0.0
    #: megabytes before the overload, and the maximum since
    dispatcher_memory: tuple[float, float] = (0.0, 0.0)
    server_memory: tuple[float, float] = (0.0, 0.0)
    #: of answers, at capacity and in overload
    distributions: list[Distribution] = field(default_factory=list)


class Receiver:
    """A sink that records the offsets received per path."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {}
        self.url = ""
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Receiver:
        self._server, self.url = await listen(self._take)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def until(self, path: str, count: int) -> None:
        """Waits until a path has received so many events; for one waiter at a time."""
        while len(self.seen.get(path, ())) < count:
            self._news.clear()
            await self._news.wait()

    async def _take(self, head: bytes, body: bytes) -> bytes:
        self.seen.setdefault(path_of(head), set()).update(map(int, _EVENT_ID.findall(body)))
        self._news.set()
        return TAKEN


show = facts(
    "Overload",
    ("servers", "{r.servers}"),
    ("capacity, delivered to 5 addresses: events/s", "{r.capacity_events_per_second:,.0f}"),
    ("offered: events/s", "{r.offered_events_per_second:,.0f} for {r.seconds:.0f} s"),
    ("answers", lambda r: ", ".join(f"{status}: {count:,}" for status, count in sorted(r.answers.items()))),
    ("429 or 503 without Retry-After", "{r.without_retry_after}"),
    ("batches sent late", "{r.late_batches:,}"),
    ("events accepted", "{r.accepted:,}"),
    ("missing, unexpected at an address", "{r.missing:,}, {r.unexpected:,}"),
    ("time to drain", "{r.drain_seconds:.0f} s"),
    ("dispatcher's memory before, maximum", lambda r: "{:.0f}, {:.0f} MB".format(*r.dispatcher_memory)),
    ("largest server's memory before, maximum", lambda r: "{:.0f}, {:.0f} MB".format(*r.server_memory)),
)


def right(outcome: Outcome) -> bool:
    """Returns whether no event was lost or invented, and every answer has the right status and header."""
    lost = outcome.missing or outcome.unexpected
    return not lost and not outcome.without_retry_after and set(outcome.answers) <= {"202", "429", "503"}


async def run(
    *, servers: int, seconds: float, probe_seconds: float = 15.0, seed: int, progress: Progress
) -> Outcome:
    """`probe_seconds`: length of the capacity phase."""
    outcome = Outcome(servers, seconds)
    requests = requests_of(np.random.default_rng(seed), 4, BATCH)
    accepted: set[int] = set()
    with network(servers) as running:
        dispatcher, others = running.roles()
        async with Receiver() as receiver, AsyncClient(running.url) as client:
            await client.create_topic(TOPIC, dict.fromkeys(names_of(4), "number"))
            await client.subscribe_many(
                NewSubscription(topic=TOPIC, url=f"{receiver.url}/{number % ADDRESSES}")
                for number in range(30)
            )
            progress.say("finding the capacity")
            began = time.perf_counter()
            await _publish(running.url, requests, None, probe_seconds, outcome, accepted)
            await _drained(client)
            outcome.capacity_events_per_second = len(accepted) / (time.perf_counter() - began)
            most = before = _megabytes(dispatcher, others)
            rate = outcome.offered_events_per_second = 2 * outcome.capacity_events_per_second
            progress.say(f"offering {rate:,.0f} events/s")

            async def watch() -> None:
                nonlocal most
                while True:
                    now = _megabytes(dispatcher, others)
                    most = max(most[0], now[0]), max(most[1], now[1])
                    await asyncio.sleep(0.5)

            watching = asyncio.create_task(watch())
            await _publish(running.url, requests, rate, seconds, outcome, accepted)
            progress.say("draining")
            ended = time.perf_counter()
            await _drained(client)
            outcome.drain_seconds = time.perf_counter() - ended
            watching.cancel()
    outcome.accepted = len(accepted)
    for number in range(ADDRESSES):
        seen = receiver.seen.get(f"/{number}", set())
        outcome.missing += len(accepted - seen)
        outcome.unexpected += len(seen - accepted)
    outcome.dispatcher_memory, outcome.server_memory = zip(before, most, strict=True)
    return outcome


async def _publish(
    url: str, requests: list[bytes], rate: float | None, seconds: float, outcome: Outcome, accepted: set[int]
) -> None:
    """Publishes for some seconds at `rate` events per second, or as fast as answers arrive."""
    answers: Counter[str] = Counter()
    taken: list[float] = []

    def on_answer(answer: Answer, due: float, sent: float) -> None:
        taken.append(1e3 * (time.perf_counter() - sent))
        answers[str(answer.status)] += 1
        outcome.late_batches += bool(rate) and sent > due + 1
        if answer.status == 202:
            ids = msgspec.json.decode(answer.body)["ids"]
            accepted.update(int(name.rpartition("-")[2]) for name in ids)
        elif answer.status in (429, 503) and b"retry-after:" not in answer.head:
            outcome.without_retry_after += 1

    schedule = every(BATCH / rate if rate else 0.0, seconds)
    await publish(url, requests, schedule, CONNECTIONS if rate else 8, on_answer)
    outcome.answers = dict(answers)
    what = "answers in overload" if rate else "answers at capacity"
    outcome.distributions.append(Distribution.of(what, "ms", taken))


async def _drained(client: AsyncClient) -> None:
    """Waits until no server has a lag or a backlog, several times in a row."""
    quiet = 0
    while quiet < 5:
        await asyncio.sleep(0.5)
        waiting = [one for one in await client.servers() if one.lag or one.backlog]
        quiet = 0 if waiting else quiet + 1


def _megabytes(dispatcher: psutil.Process, servers: list[psutil.Process]) -> tuple[float, float]:
    """Returns the memory of the dispatcher and of the largest server."""
    return dispatcher.memory_info().rss / 1e6, max(one.memory_info().rss for one in servers) / 1e6
