"""Delivery to fifty addresses, without and with one that never answers and one that takes ten seconds.

Two networks of one server each: both notify fifty addresses of every event, one also the two bad ones. Rounds
alternate with the same publisher and the same sinks. The result is the 99th percentile of the time from
publishing to arrival at the fifty; the median of the pairwise ratios counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from edn.tools.bench.histogram import Distribution, percentile
from edn.tools.bench.network import Running, network
from edn.tools.bench.noisy_peer import Arrivals, start_peer
from edn.tools.bench.report import Progress, facts, median_ratio, run_pairs

TOPIC = "isolation"


@dataclass(frozen=True, slots=True)
class Isolation:
    addresses: int
    events: int
    #: seconds: the 99th percentile of each round
    without: list[float]
    beside: list[float]
    #: of all rounds
    distributions: list[Distribution]

    @property
    def ratio(self) -> float:
        return median_ratio(self.beside, self.without)


show = facts(
    "Isolation of addresses",
    ("addresses, events per round", "{r.addresses}, {r.events}"),
    ("99th percentile without, ms", lambda r: " ".join(f"{one * 1000:.0f}" for one in r.without)),
    ("beside two bad addresses, ms", lambda r: " ".join(f"{one * 1000:.0f}" for one in r.beside)),
    ("ratio, median of the pairs", "{r.ratio:.2f}"),
)


async def run(*, addresses: int, events: int, rate: float, pairs: int, progress: Progress) -> Isolation:
    with start_peer("sinks") as sinks, network(1) as calm, network(1) as beset:
        arrivals = Arrivals(sinks)
        bad = {"calm": [], "beset": ["/never/beset", "/slow-10/beset"]}
        good = {side: [f"/quick/{side}/{number}" for number in range(addresses)] for side in bad}
        for side, running in (("calm", calm), ("beset", beset)):
            async with httpx.AsyncClient(base_url=running.url, timeout=60) as http:
                answer = await http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"x": "number"}})
                answer.raise_for_status()
                urls = [arrivals.url + path for path in (*good[side], *bad[side])]
                wanted = [{"topic": TOPIC, "sink": {"url": url}} for url in urls]
                (await http.post("/v1/subscriptions", json=wanted)).raise_for_status()

        async def measure(running: Running, side: str, pair: int) -> list[float]:
            async with httpx.AsyncClient(base_url=running.url, timeout=60) as http:
                found = await arrivals.round(http, TOPIC, good[side], events, rate, f"{side}-{pair}")
            return [seconds for row in found.values() for seconds in row]

        # In the first pair the circuit breakers of the bad addresses open.
        without, beside = await run_pairs(
            pairs,
            lambda pair: measure(calm, "calm", pair),
            lambda pair: measure(beset, "beset", pair),
            progress,
        )
    tails = [[percentile(one, 99) for one in rounds] for rounds in (without, beside)]
    distributions = [
        Distribution.of(what, "ms", [1000 * seconds for one in rounds for seconds in one])
        for what, rounds in (("arrival without", without), ("arrival beside two bad addresses", beside))
    ]
    return Isolation(addresses, events, tails[0], tails[1], distributions)
