"""Replay of many retained events to new subscriptions, beside publishers.

*First* is the time from the request to subscribe to the first notification, *all* to the last replayed one.
Live throughput is that of publishers that wait for each answer, to a topic without retention, for some
seconds without and with replays to one new subscription after the other. The median of the pairs counts.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from statistics import median

import msgspec
import numpy as np

from edn.client import AsyncClient
from edn.tools.bench.network import TOPIC, names_of, network, requests_of
from edn.tools.bench.overload import Receiver
from edn.tools.bench.plain import every, publish
from edn.tools.bench.report import Progress, facts, median_ratio

#: the topics: one with retention, one without
KEPT, LIVE = TOPIC, "live"
BATCH = 100
CONNECTIONS = 4
DIMENSIONS = 4
#: one event of a hundred has a first attribute below this
SMALL = 0.1


@dataclass(slots=True)
class Outcome:
    servers: int
    retained: int
    matching: int = 0
    #: seconds, one per subscription
    first: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)
    #: the same while others publish
    first_beside: list[float] = field(default_factory=list)
    #: events/s of the pairs
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)

    @property
    def throughput_ratio(self) -> float:
        return median_ratio(self.beside, self.alone)


show = facts(
    "Replay to new subscriptions",
    ("servers", "{r.servers}"),
    ("events retained, of which match", "{r.retained:,}, {r.matching:,}"),
    ("first notification: median, longest", lambda r: f"{median(r.first):.3f} s, {max(r.first):.3f} s"),
    ("all of the replay: median, longest", lambda r: f"{median(r.all):.3f} s, {max(r.all):.3f} s"),
    (
        "first notification beside publishers",
        lambda r: f"{median(r.first_beside):.3f} s, {max(r.first_beside):.3f} s",
    ),
    ("live publishing alone: events/s", lambda r: f"{median(r.alone):,.0f}"),
    ("live publishing beside replays: events/s", lambda r: f"{median(r.beside):,.0f}"),
    ("ratio, median of the pairs", "{r.throughput_ratio:.3f}"),
)


async def run(
    *,
    servers: int,
    retained: int,
    subscriptions: int = 10,
    pairs: int,
    seconds: float = 4.0,
    seed: int,
    progress: Progress,
) -> Outcome:
    outcome = Outcome(servers, retained)
    names = dict.fromkeys(names_of(DIMENSIONS), "number")
    kept = requests_of(np.random.default_rng(seed), DIMENSIONS, BATCH)
    live = [one.replace(f"/{KEPT}/".encode(), f"/{LIVE}/".encode(), 1) for one in kept]
    with network(servers) as running:
        url = running.url
        async with Receiver() as receiver, AsyncClient(url) as client:
            await client.create_topic(KEPT, names, availability="forever")
            await client.create_topic(LIVE, names)
            progress.say(f"publishing {retained:,} events with retention")
            count = retained // BATCH
            await publish(url, kept, repeat(0.0, count), CONNECTIONS)
            events = [msgspec.json.decode(one.partition(b"\r\n\r\n")[2]) for one in kept]
            matching = [sum(event["a0"] < SMALL for event in batch) for batch in events]
            outcome.matching = sum(matching[number % len(kept)] for number in range(count))
            for number in range(subscriptions):
                progress.say(f"subscription {number + 1} of {subscriptions}")
                first, last = await _replay(client, receiver, f"warm-{number}", outcome.matching)
                outcome.first.append(first)
                outcome.all.append(last)
            for number in range(pairs):
                progress.say(f"live throughput, pair {number + 1} of {pairs}")
                outcome.alone.append(await _live_throughput(url, live, seconds))
                with _subscribers(url, f"live-{number}", outcome.matching) as taken:
                    outcome.beside.append(await _live_throughput(url, live, seconds))
                outcome.first_beside += taken
    return outcome


async def _live_throughput(url: str, requests: list[bytes], seconds: float) -> float:
    """Returns the events per second of a few publishers that wait for each answer."""
    began = time.perf_counter()
    sent = await publish(url, requests, every(0.0, seconds), CONNECTIONS)
    return sent * BATCH / (time.perf_counter() - began)


async def _replay(client: AsyncClient, receiver: Receiver, name: str, count: int) -> tuple[float, float]:
    """Subscribes and returns the seconds to the first and to the last replayed notification."""
    path = f"/{name}"
    began = time.perf_counter()
    await client.subscribe(KEPT, {"a0": {"lt": SMALL}}, url=f"{receiver.url}/{name}", id=name)
    await receiver.until(path, 1)
    first = time.perf_counter() - began
    await receiver.until(path, count)
    last = time.perf_counter() - began
    await client.unsubscribe(name)
    return first, last


@contextmanager
def _subscribers(url: str, name: str, count: int) -> Iterator[list[float]]:
    """Subscribes again and again in another process, so that publishers are not slowed by it.

    The list has the seconds to each first notification, at the end.
    """
    context = multiprocessing.get_context("spawn")
    begun, ending, answer = context.Event(), context.Event(), context.SimpleQueue()
    process = context.Process(target=_keep_subscribing, args=(url, name, count, begun, ending, answer))
    process.start()
    begun.wait()
    taken: list[float] = []
    try:
        yield taken
    finally:
        ending.set()
        taken += answer.get()
        process.join()


def _keep_subscribing(
    url: str, name: str, count: int, begun: Event, ending: Event, answer: SimpleQueue[list[float]]
) -> None:
    async def keep_subscribing() -> None:
        taken: list[float] = []
        async with Receiver() as receiver, AsyncClient(url) as client:
            for number in itertools.count():
                first, _ = await _replay(client, receiver, f"{name}-{number}", count)
                if begun.is_set():
                    taken.append(first)
                begun.set()
                if ending.is_set():
                    break
        answer.put(taken)

    asyncio.run(keep_subscribing())
