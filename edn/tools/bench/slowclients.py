"""A thousand clients that send a byte a second: what they do to the latency of an ordinary publisher.

Pairs of rounds on one network, alone and beside them in turn: the publisher sends single events, one after
the other at a steady rate, and each answer's time is taken. The clients begin requests and never finish them;
those that are cut off come back. The ratio of the two 99th percentiles is taken pair by pair; the median
counts.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass

from edn.client import AsyncClient
from edn.tools.bench.histogram import Distribution, percentile
from edn.tools.bench.network import network
from edn.tools.bench.plain import ask, connect, start_program
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
    #: milliseconds, by pair: alone and beside the slow ones
    alone: list[float]
    beside: list[float]
    ratio: float
    #: connections of theirs that were cut off
    cut: int
    #: of all rounds together: alone and beside the slow ones
    distributions: list[Distribution]


class _Clients:
    def __init__(self, url: str, clients: int) -> None:
        self._url = url
        self._clients = clients
        self.cut = 0

    async def run(self) -> None:
        """Until standard input ends."""
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
        # Half of them never end their headers, half their body. No two send at the same moment.
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
    """How long a publisher's answers took, in milliseconds."""
    reader, writer = await connect(url)
    body = b'{"price": 1.5}'
    request = _HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    taken = []
    due = time.perf_counter()
    for _ in range(requests):
        due += 1 / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        answer = await ask(reader, writer, request)
        taken.append(1e3 * (time.perf_counter() - began))
        if answer.status != 202:
            raise RuntimeError(f"the publisher was refused: {answer.head[:100]!r}")
    writer.close()
    return taken


async def _measure(
    url: str, clients: int, pairs: int, requests: int, rate: float, progress: Progress
) -> Outcome:
    async with AsyncClient(url) as client:
        await client.create_topic(TOPIC, {"price": "number"})
    await _round(url, requests // 4, rate)
    alone: list[list[float]] = []
    beside: list[list[float]] = []
    cut = 0
    for pair in range(pairs):
        progress.say(f"pair {pair + 1} of {pairs}")
        for slowly in (False, True) if pair % 2 == 0 else (True, False):
            # A process of their own in both, alike but for how many: they shall not slow who measures.
            slow = await start_program("edn.tools.bench.slowclients", url, str(clients if slowly else 0))
            assert slow.stdout is not None
            await slow.stdout.readline()  # all have begun
            (beside if slowly else alone).append(await _round(url, requests, rate))
            told, _ = await slow.communicate(b"")  # which ends its standard input
            cut += int(told or 0)
    tails, tails_beside = ([percentile(one, 99) for one in rounds] for rounds in (alone, beside))
    ratio = median_ratio(tails_beside, tails)
    distributions = [
        Distribution.of(what, "ms", [taken for one in rounds for taken in one])
        for what, rounds in (("answers alone", alone), ("answers beside slow clients", beside))
    ]
    return Outcome(clients, pairs, requests, tails, tails_beside, ratio, cut, distributions)


show = facts(
    "Slow clients",
    ("slow clients", "{r.clients:,}, a byte a second each"),
    ("pairs of rounds, requests in each", "{r.pairs}, {r.requests_each:,}"),
    ("p99 alone, ms", lambda r: " ".join(f"{one:.2f}" for one in r.alone)),
    ("p99 beside them, ms", lambda r: " ".join(f"{one:.2f}" for one in r.beside)),
    ("ratio, median of the pairs", "{r.ratio:.2f}"),
    ("their connections that were cut off", "{r.cut:,}"),
)


def run(*, clients: int, pairs: int, requests: int, rate: float, progress: Progress) -> Outcome:
    with network(1) as running:
        return asyncio.run(_measure(running.url, clients, pairs, requests, rate, progress))


if __name__ == "__main__":
    asyncio.run(_Clients(sys.argv[1], int(sys.argv[2])).run())
