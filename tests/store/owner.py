"""`python -m tests.store.owner URL SCHEMA`: owns the log and obeys commands, for tests that stop a process.

append   append a control record; prints its offset, or the error
hold     append a record in a transaction that stays open until a line comes; prints `holding` inside it
"""

from __future__ import annotations

import asyncio
import sys

from dispatcher.store.interface import Transaction
from dispatcher.store.postgres.log import PostgresLog
from edn.errors import EdnError
from edn.runtime.postgres import lease, writer
from edn.runtime.postgres.database import Database
from edn.runtime.secret_box import SecretBox


def say(text: object) -> None:
    print(text, flush=True)


def append(transaction: Transaction) -> int:
    return transaction.append_control("s1", "join", incarnation=1)


def hold(transaction: Transaction) -> int:
    # The read sends the write before it: the database has the row when the process stops.
    offset = append(transaction)
    transaction.connection.execute("SELECT 1").fetchone()
    say("holding")
    sys.stdin.readline()
    return offset


async def main(url: str, schema: str) -> None:
    lease.LEASE_SECONDS, writer.RENEW_SECONDS = 1.0, 0.3
    log = PostgresLog(Database.parse(url, schema, allow_single=True), box=SecretBox([bytes(32)]))
    log.start()
    say(f"owns {log.incarnation}")
    while command := (await asyncio.to_thread(sys.stdin.readline)).strip():
        try:
            say(await log.submit(hold if command == "hold" else append))
        except EdnError as error:
            say(type(error).__name__)
    await log.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
