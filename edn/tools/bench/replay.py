"""Measures replay: a new subscription among many retained events, beside publishers.

A network of its own keeps events for ever. *First* is the time from the request to subscribe to the first
notification at the receiver, *all* to the last of its past. Live throughput is that of publishers who wait
for their answers, to a topic that keeps nothing, for some seconds alone and for as long while one
subscription after the other is told its past; in turn, and the medians of the pairs count.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from statistics import median
from typing import Any

import msgspec
import numpy as np

from edn.client import AsyncClient
from edn.tools.bench.network import TOPIC, names_of, network, requests_of
from edn.tools.bench.overload import Receiver
from edn.tools.bench.plain import connect, publish
from edn.tools.bench.report import Progress, facts, median_ratio

#: the topics: one that keeps its events, one that does not
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
    #: seconds, one a subscription
    first: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)
    #: the same of those who subscribed while others published
    first_beside: list[float] = field(default_factory=list)
    #: events/s of the pairs
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "throughput_ratio": self.ratio}

    @property
    def ratio(self) -> float:
        return median_ratio(self.beside, self.alone)


show = facts(
    "The past of new subscriptions",
    ("servers", "{r.servers}"),
    ("events retained, of which match", "{r.retained:,}, {r.matching:,}"),
    ("first notification: median, longest", lambda r: f"{median(r.first):.3f} s, {max(r.first):.3f} s"),
    ("all of the past: median, longest", lambda r: f"{median(r.all):.3f} s, {max(r.all):.3f} s"),
    (
        "first notification beside publishers",
        lambda r: f"{median(r.first_beside):.3f} s, {max(r.first_beside):.3f} s",
    ),
    ("live publishing alone: events/s", lambda r: f"{median(r.alone):,.0f}"),
    ("live publishing beside replays: events/s", lambda r: f"{median(r.beside):,.0f}"),
    ("ratio, median of the pairs", "{r.ratio:.3f}"),
)


def run(
    *,
    servers: int,
    retained: int,
    subscriptions: int = 10,
    pairs: int,
    seconds: float = 4.0,
    seed: int,
    progress: Progress,
) -> Outcome:
    with network(servers) as running:
        return asyncio.run(
            _run(running.url, Outcome(servers, retained), subscriptions, pairs, seconds, seed, progress)
        )


async def _run(
    url: str, outcome: Outcome, subscriptions: int, pairs: int, seconds: float, seed: int, progress: Progress
) -> Outcome:
    rng = np.random.default_rng(seed)
    names = dict.fromkeys(names_of(DIMENSIONS), "number")
    kept = requests_of(rng, DIMENSIONS, BATCH)
    live = [one.replace(f"/{KEPT}/".encode(), f"/{LIVE}/".encode(), 1) for one in kept]
    async with Receiver() as receiver, AsyncClient(url) as client:
        await client.create_topic(KEPT, names, availability="forever")
        await client.create_topic(LIVE, names)
        progress.say(f"publishing {outcome.retained:,} events that are kept")
        count = outcome.retained // BATCH
        await _publish(url, kept, count=count)
        events = [msgspec.json.decode(one.partition(b"\r\n\r\n")[2]) for one in kept]
        matching = [sum(event["a0"] < SMALL for event in batch) for batch in events]
        outcome.matching = sum(matching[number % len(kept)] for number in range(count))
        for number in range(subscriptions):
            progress.say(f"subscription {number + 1} of {subscriptions}")
            first, last = await _tell(client, receiver, f"warm-{number}", outcome.matching)
            outcome.first.append(first)
            outcome.all.append(last)
        for number in range(pairs):
            progress.say(f"live throughput, pair {number + 1} of {pairs}")
            outcome.alone.append(await _publish(url, live, seconds=seconds))
            with _subscribers(url, f"live-{number}", outcome.matching) as told:
                outcome.beside.append(await _publish(url, live, seconds=seconds))
            outcome.first_beside += told
    return outcome


async def _tell(client: AsyncClient, receiver: Receiver, name: str, count: int) -> tuple[float, float]:
    """Subscribe; the seconds until the first and until the last notification of the past."""
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
    """One subscription after the other, from a process of its own: publishers are not to be slowed by it.

    Gives the seconds to each first notification, once it is over.
    """
    context = multiprocessing.get_context("spawn")
    begun, ending, answer = context.Event(), context.Event(), context.SimpleQueue()
    process = context.Process(target=_keep_telling, args=(url, name, count, begun, ending, answer))
    process.start()
    begun.wait()
    told: list[float] = []
    try:
        yield told
    finally:
        ending.set()
        told += answer.get()
        process.join()


def _keep_telling(
    url: str, name: str, count: int, begun: Event, ending: Event, answer: SimpleQueue[list[float]]
) -> None:
    async def keep_telling() -> None:
        told: list[float] = []
        async with Receiver() as receiver, AsyncClient(url) as client:
            for number in itertools.count():
                first, _ = await _tell(client, receiver, f"{name}-{number}", count)
                if begun.is_set():
                    told.append(first)
                begun.set()
                if ending.is_set():
                    break
        answer.put(told)

    asyncio.run(keep_telling())


async def _publish(
    url: str, requests: list[bytes], *, seconds: float = math.inf, count: int | None = None
) -> float:
    """Events a second of a few publishers who wait for each answer, for a time or a number of requests."""
    began = time.perf_counter()
    numbers = iter(range(count) if count is not None else itertools.count())

    async def one() -> int:
        reader, writer = await connect(url)
        sent = 0
        for number in numbers:
            if time.perf_counter() - began > seconds:
                break
            await publish(reader, writer, requests[number % len(requests)])
            sent += 1
        writer.close()
        return sent * BATCH

    counts = await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return sum(counts) / (time.perf_counter() - began)
