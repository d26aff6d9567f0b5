"""Listing, reading and requeueing dead letters when one server has a million of them.

The letters are written into the server's database in its own format, because a million failed notifications
would take days. All requests go through the dispatcher: pages of a hundred from all over the list, of all
letters and of one subscription, single letters, resending.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgspec

from edn.tools.bench.histogram import Distribution
from edn.tools.bench.network import NOWHERE, TOPIC, network
from edn.tools.bench.report import Progress, rows

SUBSCRIPTIONS = 100
PAGE = 100
#: microseconds: the time of the first letter; recent enough that none expires
FIRST = int((time.time() - 86_400) * 1e6)


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of one kind of call."""

    call: str
    #: of the server
    letters: int
    calls: int
    median: float
    slowest: float
    distributions: list[Distribution]


show = rows(
    "{r[0].letters:,} dead letters",
    ("call", "{r.call}"),
    ("calls", "{r.calls}"),
    ("median ms", "{r.median:.1f}"),
    ("slowest ms", "{r.slowest:.1f}"),
)


def run(*, letters: int, calls: int = 50, seed: int, progress: Progress) -> list[Times]:
    chance = Random(seed)
    with network(1) as running, httpx.Client(base_url=running.url, timeout=60) as http:
        http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"x": "number"}}).raise_for_status()
        body = [
            {"id": f"s{n}", "topic": TOPIC, "sink": {"url": f"{NOWHERE}/{n}"}} for n in range(SUBSCRIPTIONS)
        ]
        http.post("/v1/subscriptions", json=body).raise_for_status()
        [database] = running.data.rglob("server.db")
        fill(database, letters, progress)
        progress.say("asking")
        return _measure(http, letters, calls, chance)


def fill(database: Path, letters: int, progress: Progress) -> None:
    """Writes letters like `edn_server.delivery.dead_letters`, spread over the subscriptions."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None, timeout=60)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.executemany("INSERT INTO names VALUES (?, ?)", [(n + 1, f"s{n}") for n in range(SUBSCRIPTIONS)])
        step = 50_000
        for start in range(1, letters + 1, step):
            progress.say(f"writing letters, {start:,} of {letters:,}")
            numbers = range(start, min(start + step, letters + 1))
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "INSERT INTO dead_letters VALUES (?, ?, ?, ?, 12, 500, 'it answered 500', 1, ?, ?)",
                (_letter(number) for number in numbers),
            )
            names = ((number % SUBSCRIPTIONS + 1, FIRST + number, number) for number in numbers)
            db.executemany("INSERT INTO dead_names VALUES (?, ?, ?)", names)
            db.execute("COMMIT")
        db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'outbox'", (letters,))
        db.execute("INSERT OR IGNORE INTO sqlite_sequence (name, seq) VALUES ('outbox', ?)", (letters,))


def _letter(number: int) -> tuple[Any, ...]:
    owner = number % SUBSCRIPTIONS
    event = {"id": f"e{number}", "time": "2023-11-14T22:13:20Z", "attributes": {"x": number}}
    entry = {"topic": TOPIC, "event": event, "matches": [{"subscription": f"s{owner}"}]}
    body = msgspec.json.encode({"notifications": [entry]})
    died = FIRST + number
    return number, f"//{NOWHERE}/{owner}", died, died, struct.pack("<q", owner + 1), body


def _measure(http: httpx.Client, letters: int, calls: int, chance: Random) -> list[Times]:
    server = http.get("/v1/servers").json()["servers"][0]["id"]

    def place() -> int:
        return chance.randrange(1, letters)

    def page(subscription: str | None = None, **query: str) -> Callable[[], httpx.Response]:
        named = {} if subscription is None else {"subscription": subscription}
        return lambda: http.get("/v1/dead-letters", params={"limit": PAGE, **query, **named})

    def cursor(number: int) -> str:
        return f"{FIRST + number}-{number}"

    def letter(number: int, method: str, path: str = "") -> Callable[[], httpx.Response]:
        return lambda: http.request(method, f"/v1/dead-letters/{server}.{number}{path}")

    kinds = {
        "the first page": [page()] * calls,
        "a page anywhere": [page(after=f"{server}~{cursor(place())}") for _ in range(calls)],
        "a page of a subscription": [
            page(f"s{chance.randrange(SUBSCRIPTIONS)}", after=cursor(place())) for _ in range(calls)
        ],
        "one letter": [letter(place(), "GET") for _ in range(calls)],
        "resend one": [
            letter(number, "POST", "/resend") for number in chance.sample(range(1, letters + 1), calls)
        ],
    }
    return [_timed(name, letters, requests) for name, requests in kinds.items()]


def _timed(name: str, letters: int, calls: list[Callable[[], httpx.Response]]) -> Times:
    taken = []
    for call in calls:
        began = time.perf_counter()
        answer = call()
        taken.append((time.perf_counter() - began) * 1000)
        if answer.status_code != 200:
            raise RuntimeError(f"{name}: {answer.status_code} {answer.text[:200]}")
    spread = Distribution.of(name, "ms", taken)
    return Times(name, letters, len(taken), spread.p50, spread.most, [spread])
