"""What an address that never answers, and one that answers after ten seconds, cost fifty others.

Two networks of one server each run side by side: in one, fifty addresses hear of every event; in the other
the same, and the two bad ones as well. They are measured in turn, never at the same time, with the same
publisher and the same receiver. What counts is the time from publishing to arrival at the fifty, its 99th
percentile a round; of each pair of rounds the ratio, of the pairs the median.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import msgspec

from edn.bench.histogram import Distribution, percentile
from edn.bench.publish import network
from edn.bench.report import Progress, show_one

TOPIC = "isolation"
SLOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Isolation:
    addresses: int
    events: int
    #: seconds: the 99th percentile of each round
    without: list[float]
    beside: list[float]
    #: of all rounds together
    distributions: list[Distribution]

    @property
    def ratio(self) -> float:
        return median(bad / good for good, bad in zip(self.without, self.beside, strict=True))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}

    def cells(self) -> list[tuple[str, str]]:
        return [
            ("addresses, events a round", f"{self.addresses}, {self.events}"),
            ("99th percentile without, ms", " ".join(f"{one * 1000:.0f}" for one in self.without)),
            ("beside two bad addresses, ms", " ".join(f"{one * 1000:.0f}" for one in self.beside)),
            ("ratio, median of the pairs", f"{self.ratio:.2f}"),
        ]


class _Sink:
    """Answers at once, late or never, by the path; notes when each event came to each path."""

    def __init__(self) -> None:
        self.arrivals: dict[tuple[str, str], float] = {}
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._arrived = asyncio.Event()
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=256)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.close()
        await asyncio.sleep(0)

    async def all_there(self, wanted: list[tuple[str, str]]) -> None:
        while not all(key in self.arrivals for key in wanted):
            self._arrived.clear()
            await self._arrived.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
                body = await reader.readexactly(length)
                now = time.perf_counter()
                path = head.split(" ", 2)[1]
                for entry in msgspec.json.decode(body)["notifications"]:
                    self.arrivals.setdefault((path, entry["event"]["id"]), now)
                self._arrived.set()
                if path.endswith("/never"):
                    await reader.read()  # until the other side gives up
                    return
                if path.endswith("/slow"):
                    await asyncio.sleep(SLOW_SECONDS)
                writer.write(b"HTTP/1.1 204 Taken\r\ncontent-length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()


def show(outcome: Isolation, *, as_json: bool) -> None:
    show_one("Isolation of addresses", outcome, as_json=as_json)


def run(*, addresses: int, events: int, rate: float, pairs: int, progress: Progress) -> Isolation:
    with (
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
        network(Path(first), 1) as (calm, _),
        network(Path(second), 1) as (beset, _),
    ):
        return asyncio.run(_run(calm, beset, addresses, events, rate, pairs, progress))


async def _run(
    calm: str, beset: str, addresses: int, events: int, rate: float, pairs: int, progress: Progress
) -> Isolation:
    sink = _Sink()
    await sink.start()
    try:
        good = {side: [f"/{side}/{number}" for number in range(addresses)] for side in ("calm", "beset")}
        bad = {"calm": [], "beset": ["/beset/never", "/beset/slow"]}
        for side, url in (("calm", calm), ("beset", beset)):
            async with httpx.AsyncClient(base_url=url, timeout=60) as http:
                answer = await http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"x": "number"}})
                answer.raise_for_status()
                wanted = [
                    {"topic": TOPIC, "sink": {"url": sink.url + path}} for path in (*good[side], *bad[side])
                ]
                (await http.post("/v1/subscriptions", json=wanted)).raise_for_status()
        without: list[list[float]] = []
        beside: list[list[float]] = []
        for pair in range(pairs + 1):
            progress.say(f"pair {pair} of {pairs}")
            for side, url, taken in (("calm", calm, without), ("beset", beset, beside)):
                times = await _round(sink, url, good[side], events, rate, f"{side}-{pair}")
                if pair:  # the first warms both up, and lets the bad addresses show what they are
                    taken.append(times)
        tails = [[percentile(sorted(one), 99) for one in rounds] for rounds in (without, beside)]
        distributions = [
            Distribution.of(what, "ms", [1000 * seconds for one in rounds for seconds in one])
            for what, rounds in (("arrival without", without), ("arrival beside two bad addresses", beside))
        ]
        return Isolation(addresses, events, tails[0], tails[1], distributions)
    finally:
        await sink.stop()


async def _round(sink: _Sink, url: str, paths: list[str], events: int, rate: float, name: str) -> list[float]:
    """The seconds from publishing to each arrival."""
    published: dict[str, float] = {}
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        begin = time.perf_counter()
        for number in range(events):
            await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
            id = f"{name}-{number}"
            published[id] = time.perf_counter()
            body = {"$id": id, "x": number}
            (await http.post(f"/v1/topics/{TOPIC}/events", json=body)).raise_for_status()
    wanted = [(path, id) for path in paths for id in published]
    async with asyncio.timeout(120):
        await sink.all_there(wanted)
    return [sink.arrivals[path, id] - published[id] for path, id in wanted]
