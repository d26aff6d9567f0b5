"""Publishing to a topic that refuses unadvertised events, beside the same topic without enforcement.

One network with one server and no subscription. The publisher has advertisements, one per symbol, and all its
events are covered. Requests of 100 events go to both topics in turn, several rounds; medians count. Symbols
of up to five characters are exact in the index; longer ones need the predicate of the advertisement.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import repeat
from statistics import median

import msgspec
import numpy as np

from edn.client import Client
from edn.tools.bench.network import Running, cpu_seconds, network
from edn.tools.bench.plain import publish
from edn.tools.bench.report import Progress, facts

BATCH = 100
ATTRIBUTES = {"symbol": "string", "price": "number", "volume": "integer"}


@dataclass(frozen=True, slots=True)
class GuardCost:
    """Medians over the rounds."""

    symbols: str
    advertisements: int
    events: int
    off_events_per_second: float
    guard_events_per_second: float
    off_dispatcher_cpu_us: float
    guard_dispatcher_cpu_us: float
    #: median of the rounds' ratios
    throughput_ratio: float


show = facts(
    "Publishing to a guarded topic",
    ("symbols", "{r.symbols}"),
    ("advertisements of the publisher", "{r.advertisements:,}"),
    ("off: events/s", "{r.off_events_per_second:,.0f}"),
    ("guard: events/s", "{r.guard_events_per_second:,.0f}"),
    ("off: dispatcher's CPU µs/event", "{r.off_dispatcher_cpu_us:.2f}"),
    ("guard: dispatcher's CPU µs/event", "{r.guard_dispatcher_cpu_us:.2f}"),
    ("guard's events/s ÷ off's", "{r.throughput_ratio:.3f}"),
)


def run(*, advertisements: int, events: int, repeats: int, seed: int, progress: Progress) -> list[GuardCost]:
    """Measures short and long symbols."""
    kinds = {"short, exact": "{:05d}", "long, with predicates": "SYMBOL-{:05d}"}
    with network(1, EDN_TUNING="fixed") as running:
        return [
            _measure(running, kind, template, advertisements, events, repeats, seed, progress)
            for kind, template in kinds.items()
        ]


def _measure(
    running: Running,
    kind: str,
    template: str,
    advertisements: int,
    events: int,
    repeats: int,
    seed: int,
    progress: Progress,
) -> GuardCost:
    symbols = [template.format(number) for number in range(advertisements)]
    name = "short" if kind.startswith("short") else "long"
    topics = {mode: f"{mode}.{name}" for mode in ("off", "guard")}
    with Client(running.url) as client:
        for mode, topic in topics.items():
            client.create_topic(topic, ATTRIBUTES, advertising=mode)
        for number, symbol in enumerate(symbols):
            if number % 100 == 0:
                progress.say(f"advertising, {number:,} of {advertisements:,}")
            given = {"symbol": [symbol], "price": [{"gte": 0}], "volume": "any"}
            client.advertise(topics["guard"], given)
    requests = {mode: _requests(topic, symbols, seed) for mode, topic in topics.items()}
    dispatcher, _ = running.roles()
    rounds: list[dict[str, float]] = []
    for number in range(repeats + 1):
        progress.say(f"{kind}: round {number} of {repeats}")
        one: dict[str, float] = {}
        # In turn, and every second round the other way round.
        for mode in sorted(requests, reverse=bool(number % 2)):
            spent, began = cpu_seconds([dispatcher]), time.perf_counter()
            asyncio.run(publish(running.url, requests[mode], repeat(0.0, events // BATCH), 8))
            one[f"{mode}_events_per_second"] = events // BATCH * BATCH / (time.perf_counter() - began)
            one[f"{mode}_dispatcher_cpu_us"] = 1e6 * (cpu_seconds([dispatcher]) - spent) / events
        one["throughput_ratio"] = one["guard_events_per_second"] / one["off_events_per_second"]
        if number:  # the first one warms up
            rounds.append(one)
    return GuardCost(
        kind, advertisements, events, **{name: median(one[name] for one in rounds) for name in rounds[0]}
    )


def _requests(topic: str, symbols: list[str], seed: int) -> list[bytes]:
    """Returns fifty whole HTTP requests with events of all symbols."""
    rng = np.random.default_rng(seed)
    requests = []
    for _ in range(50):
        chosen = rng.integers(0, len(symbols), BATCH)
        prices, volumes = rng.random(BATCH) * 100, rng.integers(1, 1000, BATCH)
        body = msgspec.json.encode(
            [
                {"symbol": symbols[place], "price": round(price, 2), "volume": volume}
                for place, price, volume in zip(
                    chosen.tolist(), prices.tolist(), volumes.tolist(), strict=True
                )
            ]
        )
        requests.append(
            b"POST /v1/topics/%s/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (topic.encode(), len(body), body)
        )
    return requests
