"""Publishing to a topic that refuses unadvertised events, beside the same topic without enforcement.

One network with one server and no subscription. The publisher has advertisements, one per symbol, and all its
events are covered. Requests of 100 events go to both topics. A round alternates between short slices for
either topic, first one way round, then the other, so that a busy moment of the machine hits both. The median
of the rounds' ratios counts. The dispatcher's CPU time per event depends less on what else the machine does.

Symbols of up to five characters are exact in the index; longer ones share coordinates, and are looked up.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import repeat
from statistics import median

import msgspec
import numpy as np
import psutil

from edn.client import Client
from edn.tools.bench.network import Running, cpu_seconds, network
from edn.tools.bench.plain import publish
from edn.tools.bench.report import Progress, facts

BATCH = 100
#: slices per round and topic
SLICES = 6
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
    cpu_ratio: float
    #: of the rounds' ratios of events/s
    lowest_ratio: float
    highest_ratio: float
    throughput_ratio: float


show = facts(
    "Publishing to a guarded topic",
    ("symbols", "{r.symbols}"),
    ("advertisements of the publisher", "{r.advertisements:,}"),
    ("off: events/s", "{r.off_events_per_second:,.0f}"),
    ("guard: events/s", "{r.guard_events_per_second:,.0f}"),
    ("off: dispatcher's CPU µs/event", "{r.off_dispatcher_cpu_us:.2f}"),
    ("guard: dispatcher's CPU µs/event", "{r.guard_dispatcher_cpu_us:.2f}"),
    ("guard's CPU ÷ off's", "{r.cpu_ratio:.3f}"),
    ("guard's events/s ÷ off's", "{r.throughput_ratio:.3f} ({r.lowest_ratio:.3f} to {r.highest_ratio:.3f})"),
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
        one = _round(running.url, dispatcher, requests, events)
        if number:  # the first one warms up
            rounds.append(one)
    ratios = [one["throughput_ratio"] for one in rounds]
    return GuardCost(
        kind,
        advertisements,
        events,
        lowest_ratio=min(ratios),
        highest_ratio=max(ratios),
        **{name: median(one[name] for one in rounds) for name in rounds[0]},
    )


def _round(
    url: str, dispatcher: psutil.Process, requests: dict[str, list[bytes]], events: int
) -> dict[str, float]:
    """Publishes to both topics in turn, in slices."""
    count = max(1, events // BATCH // SLICES)
    seconds, cpu = dict.fromkeys(requests, 0.0), dict.fromkeys(requests, 0.0)
    for slice_ in range(SLICES):
        for mode in sorted(requests, reverse=bool(slice_ % 2)):
            spent, began = cpu_seconds([dispatcher]), time.perf_counter()
            asyncio.run(publish(url, requests[mode], repeat(0.0, count), 8))
            seconds[mode] += time.perf_counter() - began
            cpu[mode] += cpu_seconds([dispatcher]) - spent
    published = SLICES * count * BATCH
    found = {f"{mode}_events_per_second": published / spent for mode, spent in seconds.items()}
    found |= {f"{mode}_dispatcher_cpu_us": 1e6 * spent / published for mode, spent in cpu.items()}
    # A short slice may use no tick of the CPU's clock.
    found["cpu_ratio"] = cpu["guard"] / cpu["off"] if cpu["off"] else 1.0
    found["throughput_ratio"] = seconds["off"] / seconds["guard"]
    return found


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
