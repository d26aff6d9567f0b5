"""Compares PostgreSQL with a synchronous standby with SQLite, part by part, and with the accepted bounds.

Every part measures both engines in turn, in rounds; medians of the rounds count. All processes, both database
servers and the measuring program share this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edn.errors import InvalidInput
from edn.tools.bench.database import append, apply, publishing, report, several
from edn.tools.bench.database.engines import POSTGRESQL, SQLITE
from edn.tools.bench.database.outcome import Bound, Outcome
from edn.tools.bench.database.replicated import Replicated, check_programs, replicated
from edn.tools.bench.delivery import benchmark as delivery
from edn.tools.bench.delivery.results import FLAT_OUT
from edn.tools.bench.delivery.systems import ON_DATABASE
from edn.tools.bench.report import Progress

PARTS = ("append", "apply", "publish", "delivery", "dispatchers")
DISPATCHERS = (1, 2, 4)

show = report.show


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    servers: int
    subscriptions: int
    events: int
    rounds: int
    seed: int
    #: commits per round of `append`, and bytes of their events
    commits: int = 400
    append_bytes: Sequence[int] = (50_000, 150_000)
    #: subscriptions and frames per round of `apply`
    apply_subscriptions: int = 10_000
    frames: int = 60
    singles: int = 300
    #: of `delivery`
    addresses: int = 1000
    delivery_subscriptions: int = 10_000
    flat_events: int = 3000
    #: of `delivery` and of `dispatchers`
    seconds: float = 6.0
    #: events per second of all dispatchers together
    rate: float = 5000.0


TINY: dict[str, Any] = {
    "commits": 20,
    "append_bytes": (20_000,),
    "apply_subscriptions": 500,
    "frames": 3,
    "singles": 10,
    "addresses": 20,
    "delivery_subscriptions": 200,
    "flat_events": 200,
    "seconds": 1.0,
    "rate": 1000.0,
}


def run(
    *, parts: Sequence[str], quick: bool, progress: Progress, rounds: int, seed: int, **sizes: Any
) -> Outcome:
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise InvalidInput(f"--parts must be some of {', '.join(PARTS)}, got {unknown[0]}")
    check_programs()
    if quick:
        sizes = {"servers": 2, "subscriptions": 20, "events": 3000, **TINY}
    chosen = Sizes(rounds=1 if quick else rounds, seed=seed, **sizes)
    outcome = Outcome()
    if any(part != "delivery" for part in parts):
        with replicated() as database:
            _measure(database, parts, chosen, outcome, progress)
    if "delivery" in parts:
        _deliver(chosen, outcome, progress)
    return outcome


def _measure(
    database: Replicated, parts: Sequence[str], sizes: Sizes, outcome: Outcome, progress: Progress
) -> None:
    shared: dict[str, Any] = {"rounds": sizes.rounds, "progress": progress}
    if "append" in parts:
        outcome.append = append.measure(database, sizes.append_bytes, sizes.commits, **shared)
        for size in sizes.append_bytes:
            mb = {one.engine: one.mb_per_second for one in outcome.append if one.size == size}
            outcome.bounds.append(_ratio(f"log append, {size // 1000} KB: MB/s", mb, 0.25))
    if "apply" in parts:
        shared["seed"] = sizes.seed
        applying = apply.measure(database, sizes.apply_subscriptions, sizes.frames, **shared)
        outcome.apply = asyncio.run(applying)
        rates = {one.engine: one.events_per_second for one in outcome.apply}
        outcome.bounds.append(_ratio("a server's apply: events/s", rates, 0.4))
    shared["seed"] = sizes.seed
    if "publish" in parts:
        outcome.publish = publishing.measure(
            database,
            servers=sizes.servers,
            subscriptions=sizes.subscriptions,
            dimensions=8,
            events=sizes.events,
            singles=sizes.singles,
            **shared,
        )
        outcome.round_trip = database.round_trip(sizes.singles)
        rates = {one.engine: one.events_per_second for one in outcome.publish}
        outcome.bounds.append(_ratio("publish to committed outboxes: events/s", rates, 0.5))
        p50 = {one.engine: one.single_p50 for one in outcome.publish}
        most = p50[SQLITE] + 1 + 1000 * outcome.round_trip
        name = "publish p50, ms (SQLite + 1 ms + round trip)"
        outcome.bounds.append(Bound(name, p50[POSTGRESQL], most, is_least=False))
    if "dispatchers" in parts:
        outcome.dispatchers = several.measure(
            database,
            DISPATCHERS,
            servers=2,
            subscriptions=min(sizes.subscriptions, 1000),
            rate=sizes.rate,
            seconds=sizes.seconds,
            **shared,
        )
        first, *others = outcome.dispatchers
        for one in others:
            name = f"CPU per event, {one.dispatchers} dispatchers ÷ 1"
            outcome.bounds.append(Bound(name, one.total_us / first.total_us, 1.15, is_least=False))


def _deliver(sizes: Sizes, outcome: Outcome, progress: Progress) -> None:
    names = {"edn": SQLITE, ON_DATABASE: POSTGRESQL}
    delivered = delivery.run(
        addresses=[sizes.addresses],
        systems=list(names),
        rates=[50.0],
        sink="webhook",
        fairness=False,
        idle_seconds=min(5.0, sizes.seconds),
        progress=progress,
        seconds=sizes.seconds,
        flat_events=sizes.flat_events,
        subscriptions=sizes.delivery_subscriptions,
        servers=2,
        rounds=sizes.rounds,
        seed=sizes.seed,
    )
    if not delivered.is_complete:
        raise RuntimeError("; ".join(delivered.failures()))
    outcome.delivery = delivered.costs
    rates = {names[one.system]: one.entries_per_second for one in delivered.costs if one.load == FLAT_OUT}
    outcome.bounds.append(_ratio("delivery, flat out: notifications/s", rates, 0.5))


def _ratio(name: str, figures: dict[str, float], least: float) -> Bound:
    return Bound(f"{name}, PostgreSQL ÷ SQLite", figures[POSTGRESQL] / figures[SQLITE], least)
