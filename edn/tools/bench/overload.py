"""Twice the capacity: publishers are answered, everything accepted arrives, memory stays bounded.

Three phases, on a network of its own: *capacity*, publishing as fast as answers come until all is delivered;
*overload*, sending at twice that rate by the clock, whatever is answered; *drain*, until nothing waits. Every
address must then have received exactly the events that were answered with 202, told apart by their offsets.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
import psutil

from edn.client import AsyncClient, NewSubscription
from edn.tools.bench.histogram import Distribution
from edn.tools.bench.network import TOPIC, Running, names_of, network, requests_of
from edn.tools.bench.plain import TAKEN, ask, connect, listen, path_of
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
    #: batches that could not be sent on time, because all connections were waiting for an answer
    late_batches: int = 0
    accepted: int = 0
    #: by address: accepted and not received, received and not accepted
    missing: int = 0
    unexpected: int = 0
    drain_seconds: float = 0.0
    #: megabytes, before the overload and the most during it and after
    dispatcher_memory: tuple[float, float] = (0.0, 0.0)
    server_memory: tuple[float, float] = (0.0, 0.0)
    #: of answers, at capacity and during the overload
    distributions: list[Distribution] = field(default_factory=list)


class Receiver:
    """Takes POSTs as fast as it can and remembers the offsets that each path has seen."""

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
        """Until so many events have come to a path; one waits at a time."""
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
    ("dispatcher's memory before, most", lambda r: "{:.0f}, {:.0f} MB".format(*r.dispatcher_memory)),
    ("largest server's memory before, most", lambda r: "{:.0f}, {:.0f} MB".format(*r.server_memory)),
)


def right(outcome: Outcome) -> bool:
    """Nothing lost, nothing made up, and everybody answered by the book."""
    lost = outcome.missing or outcome.unexpected
    return not lost and not outcome.without_retry_after and set(outcome.answers) <= {"202", "429", "503"}


def run(
    *, servers: int, seconds: float, probe_seconds: float = 15.0, seed: int, progress: Progress
) -> Outcome:
    """`probe_seconds`: for which the capacity is looked for, before twice of it is offered for `seconds`."""
    with network(servers) as running:
        return asyncio.run(_run(running, Outcome(servers, seconds), probe_seconds, seed, progress))


async def _run(
    running: Running, outcome: Outcome, probe_seconds: float, seed: int, progress: Progress
) -> Outcome:
    url = running.url
    rng = np.random.default_rng(seed)
    requests = requests_of(rng, 4, BATCH)
    dispatcher, others = running.roles()
    async with Receiver() as receiver, AsyncClient(url) as client:
        await client.create_topic(TOPIC, dict.fromkeys(names_of(4), "number"))
        await client.subscribe_many(
            [NewSubscription(topic=TOPIC, url=f"{receiver.url}/{number % ADDRESSES}") for number in range(30)]
        )
        accepted: set[int] = set()
        progress.say("finding the capacity")
        began = time.perf_counter()
        await _publish(url, requests, None, probe_seconds, outcome, accepted)
        await _drained(client)
        outcome.capacity_events_per_second = len(accepted) / (time.perf_counter() - began)
        outcome.answers = {}
        before = _megabytes([dispatcher]), max(_megabytes([one]) for one in others)
        rate = outcome.offered_events_per_second = 2 * outcome.capacity_events_per_second
        progress.say(f"offering {rate:,.0f} events/s")
        most = [before[0], before[1]]
        watching = asyncio.create_task(_watch(dispatcher, others, most))
        await _publish(url, requests, rate, outcome.seconds, outcome, accepted)
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
        outcome.dispatcher_memory = (before[0], most[0])
        outcome.server_memory = (before[1], most[1])
    return outcome


async def _publish(
    url: str, requests: list[bytes], rate: float | None, seconds: float, outcome: Outcome, accepted: set[int]
) -> None:
    """At `rate` events a second by the clock, or as fast as answers come; for `seconds`."""
    began = time.perf_counter()
    answers: Counter[str] = Counter()
    taken: list[float] = []

    def due() -> Iterator[tuple[int, float]]:
        number = 0
        while time.perf_counter() - began < seconds:
            yield number, began + number * BATCH / rate if rate else 0.0
            number += 1

    schedule = due()

    async def connection() -> None:
        reader, writer = await connect(url)
        for number, when in schedule:
            wait = when - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            elif rate and wait < -1:
                outcome.late_batches += 1
            sent = time.perf_counter()
            status, head, body = await ask(reader, writer, requests[number % len(requests)])
            taken.append(1e3 * (time.perf_counter() - sent))
            answers[str(status)] += 1
            if status == 202:
                accepted.update(int(name.rpartition("-")[2]) for name in msgspec.json.decode(body)["ids"])
            elif status in (429, 503) and b"retry-after:" not in head:
                outcome.without_retry_after += 1
        writer.close()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS if rate else 8)))
    outcome.answers = dict(answers)
    outcome.distributions.append(
        Distribution.of("answers in overload" if rate else "answers at capacity", "ms", taken)
    )


async def _drained(client: AsyncClient) -> None:
    """Until no server lags or holds notifications, seen several times in a row."""
    quiet = 0
    while quiet < 5:
        await asyncio.sleep(0.5)
        waiting = [one for one in await client.servers() if one.lag or one.backlog]
        quiet = 0 if waiting else quiet + 1


async def _watch(dispatcher: psutil.Process, others: list[psutil.Process], most: list[float]) -> None:
    while True:
        most[0] = max(most[0], _megabytes([dispatcher]))
        most[1] = max(most[1], *(_megabytes([one]) for one in others))
        await asyncio.sleep(0.5)


def _megabytes(processes: list[psutil.Process]) -> float:
    return sum(float(process.memory_info().rss) for process in processes) / 1e6
