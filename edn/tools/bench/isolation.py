"""Measures delivery to fifty addresses beside one that never answers and one that takes ten seconds.

Two networks of one server each run side by side: in one, fifty addresses hear of every event; in the other
the same, and the two bad ones as well. They are measured in turn, never at the same time, with the same
publisher and the same receiver. What counts is the time from publishing to arrival at the fifty, its 99th
percentile a round; of each pair of rounds the ratio, of the pairs the median.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import msgspec

from edn.tools.bench.histogram import Distribution, percentile
from edn.tools.bench.network import network
from edn.tools.bench.plain import TAKEN, listen, path_of
from edn.tools.bench.report import Progress, facts, median_ratio, run_pairs

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
        return median_ratio(self.beside, self.without)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


class _Sink:
    """Answers at once, late or never, by the path; notes when each event came to each path."""

    def __init__(self) -> None:
        self.arrivals: dict[tuple[str, str], float] = {}
        self._arrived = asyncio.Event()

    async def all_there(self, wanted: list[tuple[str, str]]) -> None:
        while not all(key in self.arrivals for key in wanted):
            self._arrived.clear()
            await self._arrived.wait()

    async def take(self, head: bytes, body: bytes) -> bytes | None:
        now = time.perf_counter()
        path = path_of(head)
        for entry in msgspec.json.decode(body)["notifications"]:
            self.arrivals.setdefault((path, entry["event"]["id"]), now)
        self._arrived.set()
        if path.endswith("/slow"):
            await asyncio.sleep(SLOW_SECONDS)
        return None if path.endswith("/never") else TAKEN


show = facts(
    "Isolation of addresses",
    ("addresses, events a round", "{r.addresses}, {r.events}"),
    ("99th percentile without, ms", lambda r: " ".join(f"{one * 1000:.0f}" for one in r.without)),
    ("beside two bad addresses, ms", lambda r: " ".join(f"{one * 1000:.0f}" for one in r.beside)),
    ("ratio, median of the pairs", "{r.ratio:.2f}"),
)


def run(*, addresses: int, events: int, rate: float, pairs: int, progress: Progress) -> Isolation:
    with network(1) as calm, network(1) as beset:
        return asyncio.run(_run(calm.url, beset.url, addresses, events, rate, pairs, progress))


async def _run(
    calm: str, beset: str, addresses: int, events: int, rate: float, pairs: int, progress: Progress
) -> Isolation:
    sink = _Sink()
    server, at = await listen(sink.take)
    async with server:
        good = {side: [f"/{side}/{number}" for number in range(addresses)] for side in ("calm", "beset")}
        bad = {"calm": [], "beset": ["/beset/never", "/beset/slow"]}
        for side, url in (("calm", calm), ("beset", beset)):
            async with httpx.AsyncClient(base_url=url, timeout=60) as http:
                answer = await http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"x": "number"}})
                answer.raise_for_status()
                wanted = [{"topic": TOPIC, "sink": {"url": at + path}} for path in (*good[side], *bad[side])]
                (await http.post("/v1/subscriptions", json=wanted)).raise_for_status()
        # The first pair also lets the bad addresses show what they are.
        without, beside = await run_pairs(
            pairs,
            lambda pair: _round(sink, calm, good["calm"], events, rate, f"calm-{pair}"),
            lambda pair: _round(sink, beset, good["beset"], events, rate, f"beset-{pair}"),
            progress,
        )
        tails = [[percentile(one, 99) for one in rounds] for rounds in (without, beside)]
        distributions = [
            Distribution.of(what, "ms", [1000 * seconds for one in rounds for seconds in one])
            for what, rounds in (("arrival without", without), ("arrival beside two bad addresses", beside))
        ]
        return Isolation(addresses, events, tails[0], tails[1], distributions)


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
