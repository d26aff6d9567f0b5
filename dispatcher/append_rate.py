"""`python -m dispatcher.append_rate`: measures how fast the log commits events, for `edn bench database`.

FOLDER opens a log in a data folder, URL one in a PostgreSQL database. The program prints an empty object when
the log is open. Then each line of standard input, a JSON object with `commits`, `events` and `bytes`, is a
round: so many transactions, one after the other, with so many events of so many bytes each. Its answer has
the duration of each transaction in seconds, and the bytes that were appended.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from edn.runtime.secret_box import SecretBox

#: columns of the topic
WIDTH = 4


def _open(place: str) -> Log:
    if "://" in place:
        from dispatcher.store.postgres.log import PostgresLog
        from edn.runtime.postgres.database import Database

        return PostgresLog(Database.parse(place), box=SecretBox([bytes(32)]))
    from dispatcher.store.sqlite.log import SqliteLog

    return SqliteLog(Path(place))


async def _round(log: Log, commits: int, events: int, bytes: int) -> dict[str, Any]:
    lines = (b'"' + b"x" * (bytes - 3) + b'"\n') * events
    points = np.zeros((events, WIDTH))
    unset: list[None] = [None] * events

    def append(transaction: Transaction) -> None:
        transaction.append_events(1, list(unset), list(unset), lines, points)

    durations = []
    for _ in range(commits):
        began = time.perf_counter()
        await log.submit(append, len(lines), changes=False, is_deferred=True)
        durations.append(time.perf_counter() - began)
    return {"seconds": durations, "bytes": commits * (len(lines) + points.nbytes)}


async def _run(place: str) -> None:
    log = await asyncio.to_thread(_open, place)
    log.start()
    try:
        print("{}", flush=True)  # noqa: T201  the answer of this program
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await _round(log, **json.loads(line))), flush=True)  # noqa: T201
            await log.truncate(log.head, 0)
    finally:
        await log.stop()


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
