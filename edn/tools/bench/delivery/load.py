"""Publishes events, waits until every notification has arrived, and checks that none is missing or surplus.

An event's latency begins when it is published, or when it should have been if the answer to the event before
it was late. CPU time is counted until `SETTLE_SECONDS` after the last arrival, so that the work that follows
an answer counts; rates end at the last arrival.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from edn.arrays import Floats, Ints
from edn.tools.bench.delivery.receiver import Behaviour, Counters, Records, Streams
from edn.tools.bench.delivery.usage import Meter, Roles, Usage, memory_mb
from edn.tools.bench.delivery.workload import Expected, Workload, as_events, draw_points, host
from edn.tools.bench.plain import ask, connect

SETTLE_SECONDS = 0.5
#: seconds without any arrival after which the rest counts as missing
PATIENCE = 60.0
POLL_SECONDS = 0.02


class Target(Protocol):
    """A system under test, as the load sees it."""

    name: str
    #: where events are published
    url: str
    publish_path: str

    def roles(self) -> Roles:
        """Returns the processes of the system by role."""


class _Accepted(msgspec.Struct):
    ids: list[str]


@dataclass(frozen=True, slots=True)
class Trail:
    """Times of each event, on the steady clock."""

    ids: list[str]
    sent: Floats
    answered: Floats
    #: first arrival; NaN if there was none
    arrived: Floats


@dataclass(frozen=True, slots=True)
class Phase:
    """One measurement of one system."""

    events: int
    #: POSTs, entries of them, and matches in these
    posts: int
    entries: int
    matches: int
    #: from the first publish to the last arrival
    seconds: float
    #: seconds from publish to arrival, one per entry
    latencies: Floats
    usage: Usage
    memory_mb: float
    missing: int
    surplus: int
    trail: Trail


class Receivers:
    """The receiver processes, seen from the benchmark."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self) -> None:
        for port in self._ports:
            self._connections.append(await connect(f"http://127.0.0.1:{port}", limit=1 << 30))

    def close(self) -> None:
        for _, writer in self._connections:
            writer.close()

    def urls(self, addresses: int, path: str) -> list[str]:
        count = len(self._ports)
        return [f"http://{host(one)}:{self._ports[one % count]}/{path}" for one in range(addresses)]

    async def counters(self) -> Counters:
        found = [msgspec.msgpack.decode(one, type=Counters) for one in await self._ask("GET", "/counters")]
        return Counters(*(sum(column) for column in zip(*map(msgspec.structs.astuple, found), strict=True)))

    async def take(self) -> list[Records]:
        """Returns all records since the last call."""
        return [msgspec.msgpack.decode(one, type=Records) for one in await self._ask("GET", "/records")]

    async def behave(self, behaviour: Behaviour) -> None:
        await self._ask("PUT", "/behaviour", msgspec.json.encode(behaviour))

    async def open_streams(self, streams: Streams) -> None:
        """Opens streams in the first process; returns when all are open."""
        before = (await self.counters()).streams
        await self._ask("PUT", "/streams", msgspec.json.encode(streams), first=True)
        async with asyncio.timeout(120):
            while (await self.counters()).streams < before + len(streams.paths):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def _ask(self, method: str, path: str, body: bytes = b"", *, first: bool = False) -> list[bytes]:
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        asked = self._connections[:1] if first else self._connections
        return [(await ask(*connection, head.encode() + body)).body for connection in asked]


class Load:
    """Loads one system with events and measures it."""

    def __init__(
        self, target: Target, receivers: Receivers, workload: Workload, *, lists_matches: bool
    ) -> None:
        """`lists_matches`: whether the format of notifications names every match."""
        self._target = target
        self._receivers = receivers
        self._workload = workload
        self._lists_matches = lists_matches
        #: addresses that are waited for; the receivers must ignore the others; None: all
        self.healthy: Ints | None = None

    async def calm(self, rng: np.random.Generator, rate: float, seconds: float) -> Phase:
        """Publishes single events at a rate."""
        return await self.run(draw_points(rng, max(1, round(rate * seconds))), batch=0, rate=rate)

    async def flat_out(self, rng: np.random.Generator, events: int, batch: int) -> Phase:
        """Publishes batches as fast as they are accepted."""
        return await self.run(draw_points(rng, events), batch=batch, rate=None)

    async def run(self, points: Floats, *, batch: int, rate: float | None) -> Phase:
        expected = self._workload.expect(points)
        if self.healthy is not None:
            expected = expected.only(self.healthy)
        requests = self._requests(points, batch)
        await self._receivers.take()
        meter = Meter(self._target.roles())
        published, answered, ids = await self._publish(requests, rate)
        await self._wait(expected)
        await asyncio.sleep(SETTLE_SECONDS)
        usage = meter.stop()
        memory = memory_mb(self._target.roles())
        sizes = [len(some) for some in ids]
        times = np.repeat(published, sizes)
        flat = [id for some in ids for id in some]
        numbers = {id: number for number, id in enumerate(flat)}
        found = Arrivals.read(await self._receivers.take(), numbers, self._workload.addresses)
        missing, surplus = found.compare(expected, lists_matches=self._lists_matches)
        known = found.numbers >= 0
        return Phase(
            events=len(points),
            posts=found.posts,
            entries=len(found.numbers),
            matches=int(found.matches.sum()),
            seconds=float(found.times.max(initial=published[0]) - published[0]),
            latencies=found.times[known] - times[found.numbers[known]],
            usage=usage,
            memory_mb=memory,
            missing=missing,
            surplus=surplus,
            trail=Trail(flat, times, np.repeat(answered, sizes), found.first_arrivals(len(flat))),
        )

    def _requests(self, points: Floats, batch: int) -> list[bytes]:
        """Returns whole HTTP requests: a batch each, or single events if `batch` is 0."""
        events = as_events(points)
        bodies: list[object] = list(events)
        if batch:
            bodies = [events[start : start + batch] for start in range(0, len(events), batch)]
        head = f"POST {self._target.publish_path} HTTP/1.1\r\nhost: localhost\r\n".encode()
        kind = b"content-type: application/json\r\n"
        encoded = [msgspec.json.encode(body) for body in bodies]
        return [b"%b%bcontent-length: %d\r\n\r\n%b" % (head, kind, len(body), body) for body in encoded]

    async def _publish(
        self, requests: list[bytes], rate: float | None
    ) -> tuple[Floats, Floats, list[list[str]]]:
        """Returns when each request was sent and answered, and the ids of its events."""
        sent, answers, ids = [], [], []
        reader, writer = await connect(self._target.url)
        begin = time.monotonic()
        answered = begin
        for number, request in enumerate(requests):
            now = time.monotonic()
            if rate is not None:
                due = begin + number / rate
                if due > now:
                    await asyncio.sleep(due - now)
                now = due if answered > due else time.monotonic()
            sent.append(now)
            answer = await ask(reader, writer, request)
            answered = time.monotonic()
            answers.append(answered)
            if answer.status != 202:
                raise RuntimeError(f"{self._target.name}: {answer.status} to events: {answer.body[:200]!r}")
            ids.append(msgspec.json.decode(answer.body, type=_Accepted).ids)
        writer.close()
        return np.array(sent), np.array(answers), ids

    async def _wait(self, expected: Expected) -> None:
        """Waits until everything has arrived, or nothing does any more."""
        wanted = expected.total_matches if self._lists_matches else len(expected.keys)
        before, changed = -1, time.monotonic()
        quiet = 0.0 if self._lists_matches else 1.0
        while True:
            counters = await self._receivers.counters()
            count = counters.matches if self._lists_matches else counters.entries
            now = time.monotonic()
            if count != before:
                before, changed = count, now
            # Without matches the number of entries is not known: an address may get one from each server.
            if (count >= wanted and now - changed >= quiet) or now - changed > PATIENCE:
                return
            await asyncio.sleep(POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrivals, one row per entry."""

    #: of events; -1 for unknown ones
    numbers: Ints
    owners: Ints
    matches: Ints
    times: Floats
    posts: int
    addresses: int

    @classmethod
    def read(cls, records: list[Records], numbers: dict[str, int], addresses: int) -> Arrivals:
        def column(name: str, kind: str) -> Ints:
            return np.concatenate([np.frombuffer(getattr(one, name), kind) for one in records]).astype(
                np.int64
            )

        ids = [id for one in records for id in one.ids]
        return cls(
            np.array([numbers.get(id, -1) for id in ids], np.int64),
            column("addresses", "i4"),
            column("matches", "i4"),
            np.concatenate([np.frombuffer(one.times) for one in records]),
            sum(one.posts for one in records),
            addresses,
        )

    def first_arrivals(self, events: int) -> Floats:
        arrived = np.full(events, np.nan)
        known = self.numbers >= 0
        np.fmin.at(arrived, self.numbers[known], self.times[known])
        return arrived

    def compare(self, expected: Expected, *, lists_matches: bool) -> tuple[int, int]:
        """Returns the numbers of missing and of surplus matches; of entries if matches are not listed."""
        known = self.numbers >= 0
        surplus = int((~known).sum())
        keys = self.numbers[known] * self.addresses + self.owners[known]
        found, places = np.unique(keys, return_inverse=True)
        counts = np.bincount(places, self.matches[known], len(found)).astype(np.int64)
        both, here, there = np.intersect1d(found, expected.keys, assume_unique=True, return_indices=True)
        due = np.zeros(len(found), np.int64)
        due[here] = expected.matches[there]
        if not lists_matches:
            # One entry per address and server, so no more entries than matches.
            entries = np.bincount(places, minlength=len(found))
            return len(expected.keys) - len(both), surplus + int(np.maximum(entries - due, 0).sum())
        missing = expected.total_matches - int(np.minimum(counts, due).sum())
        return missing, surplus + int(np.maximum(counts - due, 0).sum())
