"""Latency of a publisher beside a thousand clients that send one byte per second.

Pairs of rounds on one network, without and with slow clients: the publisher sends single events at a steady
rate. Slow clients begin requests and never finish them; those that are disconnected come back. The median of
the pairwise ratios of the 99th percentiles counts.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from itertools import islice

from edn.client import AsyncClient
from edn.tools.bench.histogram import Distribution, percentile
from edn.tools.bench.network import network
from edn.tools.bench.plain import Answer, connect, every, expect_accepted, publish, start_program
from edn.tools.bench.report import Progress, facts, median_ratio

TOPIC = "slowclients"
_HEAD = (
    b"POST /v1/topics/slowclients/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
)


@dataclass(slots=True)
class Outcome:
    clients: int
    pairs: int
    requests_each: int
    #: 99th percentile in milliseconds per pair, without and with slow clients
    alone: list[float]
    beside: list[float]
    ratio: float
    #: connections of slow clients that the dispatcher closed
    cut: int
    #: of all rounds, without and with slow clients
    distributions: list[Distribution]


class _Clients:
    def __init__(self, url: str, clients: int) -> None:
        self._url = url
        self._clients = clients
        self.cut = 0

    async def run(self) -> None:
        """Runs until standard input ends."""
        started = [asyncio.Event() for _ in range(self._clients)]
        tasks = [asyncio.create_task(self._trickle(number, one)) for number, one in enumerate(started)]
        await asyncio.gather(*(one.wait() for one in started))
        print("begun", flush=True)  # noqa: T201  the process that waits for it reads it
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        print(self.cut)  # noqa: T201  likewise

    async def _trickle(self, number: int, started: asyncio.Event) -> None:
        # Half of them never end their headers, half their body. They do not send at the same moment.
        whole = _HEAD + (b"content-length: 100000\r\n\r\n" if number % 2 else b"x-slow: ")
        await asyncio.sleep(number / self._clients)
        while True:
            try:
                _, writer = await connect(self._url)
            except OSError:
                await asyncio.sleep(1.0)
                continue
            try:
                writer.write(whole)
                started.set()
                while not writer.transport.is_closing():
                    await asyncio.sleep(1.0)
                    writer.write(b"a")
                self.cut += 1
            finally:
                writer.close()


async def _round(url: str, requests: int, rate: float) -> list[float]:
    """Returns the milliseconds of each answer."""
    body = b'{"price": 1.5}'
    request = _HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    taken: list[float] = []

    def on_answer(answer: Answer, due: float, sent: float) -> None:
        taken.append(1e3 * (time.perf_counter() - sent))
        expect_accepted(answer)

    await publish(url, [request], islice(every(1 / rate), requests), 1, on_answer)
    return taken


show = facts(
    "Slow clients",
    ("slow clients", "{r.clients:,}, one byte per second each"),
    ("pairs of rounds, requests in each", "{r.pairs}, {r.requests_each:,}"),
    ("p99 alone, ms", lambda r: " ".join(f"{one:.2f}" for one in r.alone)),
    ("p99 beside them, ms", lambda r: " ".join(f"{one:.2f}" for one in r.beside)),
    ("ratio, median of the pairs", "{r.ratio:.2f}"),
    ("connections closed by the dispatcher", "{r.cut:,}"),
)


async def run(*, clients: int, pairs: int, requests: int, rate: float, progress: Progress) -> Outcome:
    rounds: dict[bool, list[list[float]]] = {False: [], True: []}
    cut = 0
    with network(1) as running:
        async with AsyncClient(running.url) as client:
            await client.create_topic(TOPIC, {"price": "number"})
        await _round(running.url, requests // 4, rate)
        for pair in range(pairs):
            progress.say(f"pair {pair + 1} of {pairs}")
            for slowly in (False, True) if pair % 2 == 0 else (True, False):
                # The process runs in both rounds, so that they differ only in its clients.
                count = str(clients if slowly else 0)
                slow = await start_program("edn.tools.bench.slowclients", running.url, count)
                assert slow.stdout is not None
                await slow.stdout.readline()  # all have begun
                rounds[slowly].append(await _round(running.url, requests, rate))
                output, _ = await slow.communicate(b"")  # closes its standard input
                cut += int(output or 0)
    alone, beside = ([percentile(one, 99) for one in rounds[slowly]] for slowly in (False, True))
    distributions = [
        Distribution.of(what, "ms", [taken for one in rounds[slowly] for taken in one])
        for what, slowly in (("answers alone", False), ("answers beside slow clients", True))
    ]
    return Outcome(clients, pairs, requests, alone, beside, median_ratio(beside, alone), cut, distributions)


if __name__ == "__main__":
    asyncio.run(_Clients(sys.argv[1], int(sys.argv[2])).run())
