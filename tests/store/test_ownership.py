"""Leases, fencing tokens and commits in doubt: a former owner never commits, and nothing is lost or twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from dispatcher.store.interface import Transaction
from dispatcher.store.postgres.log import PostgresLog
from dispatcher.store.records import Record
from edn.errors import Unavailable
from edn.runtime.postgres import database as limits
from edn.runtime.postgres import lease, writer
from edn.runtime.postgres.database import Database
from edn.runtime.sql import DatabaseUnavailable
from tests.network import until
from tests.postgres import Cluster, Proxy, cluster
from tests.store.conftest import BOX, new_database


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short deadlines, so that the tests are short."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(writer, "RENEW_SECONDS", 0.3)
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(limits, "COMMIT_SECONDS", 1.0)


@pytest.fixture
def database(postgres: Cluster) -> Database:
    return new_database(postgres)


def append(transaction: Transaction) -> int:
    return transaction.append_control("s1", "join", incarnation=1)


def offsets(postgres: Cluster, database: Database) -> list[object]:
    rows = postgres.execute(f"SELECT last FROM {database.schema}.log_records ORDER BY last")
    return [last for (last,) in rows]


class Owner:
    """Another process that owns the log."""

    def __init__(self, database: Database) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.owner", database.url, database.schema],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line().startswith("owns")

    def line(self) -> str:
        assert self.process.stdout is not None
        while True:
            found = self.process.stdout.readline().strip()
            if not found.startswith("20"):  # a line of the log
                return found

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


@pytest.fixture
def owner(database: Database) -> Iterator[Owner]:
    made = Owner(database)
    yield made
    with contextlib.suppress(ProcessLookupError):
        made.go_on()
        made.process.kill()
    made.process.wait(30)
    for stream in (made.process.stdin, made.process.stdout):
        assert stream is not None
        with contextlib.suppress(OSError):
            stream.close()


def run(log: PostgresLog, *, count: int = 1) -> list[int]:
    """Append records with a log that is closed afterwards."""

    async def main() -> list[int]:
        log.start()
        try:
            return [await log.submit(append) for _ in range(count)]
        finally:
            await log.stop()

    return asyncio.run(main())


def test_a_second_owner_waits_for_the_first_and_continues_its_log(database: Database) -> None:
    first = PostgresLog(database, box=BOX)
    waited: list[float] = []
    opened: list[PostgresLog] = []
    opening = threading.Thread(
        target=lambda: opened.append(PostgresLog(database, box=BOX, on_wait=waited.append)), daemon=True
    )
    opening.start()
    until("the second owner to wait", lambda: bool(waited))
    assert run(first, count=3) == [1, 2, 3]
    opening.join(30)
    [second] = opened
    assert second.id == first.id
    assert second.incarnation > first.incarnation
    assert run(second) == [4]


@pytest.mark.slow
def test_an_owner_that_died_is_replaced_when_its_lease_is_over(owner: Owner, database: Database) -> None:
    owner.send("append")
    assert owner.line() == "1"
    owner.process.kill()
    assert run(PostgresLog(database, box=BOX)) == [2]


@pytest.mark.parametrize(
    "inside",
    [pytest.param(False, id="idle", marks=pytest.mark.slow), pytest.param(True, id="inside a transaction")],
)
def test_a_stopped_owner_never_commits_after_its_replacement(
    owner: Owner, database: Database, postgres: Cluster, inside: bool
) -> None:
    owner.send("append")
    assert owner.line() == "1"
    if inside:
        owner.send("hold")
        assert owner.line() == "holding"
    owner.stop()
    assert run(PostgresLog(database, box=BOX), count=2) == [2, 3]
    owner.go_on()
    owner.send("append")
    assert owner.process.wait(30) == writer.EXIT_FENCED
    assert offsets(postgres, database) == [1, 2, 3]


def test_the_token_is_compared_in_every_transaction(database: Database, postgres: Cluster) -> None:
    """No clock decides: the lease is not over, but another token is in its row."""
    ended = threading.Event()
    log = PostgresLog(database, box=BOX, on_failure=ended.set)

    async def main() -> None:
        log.start()
        assert await log.submit(append) == 1
        postgres.execute(f"UPDATE {database.schema}.leases SET fence = fence + 1, owner = 'other'")
        with pytest.raises(Unavailable, match="another process owns"):
            await log.submit(append)
        assert ended.wait(30)
        await log.stop()

    asyncio.run(main())
    assert offsets(postgres, database) == [1]


@pytest.mark.slow
def test_a_lease_is_renewed_without_operations(database: Database) -> None:
    log = PostgresLog(database, box=BOX)

    async def main() -> None:
        log.start()
        began = time.monotonic()
        # Two leases long: without a renewal another owner could take the log.
        while time.monotonic() - began < 2 * lease.LEASE_SECONDS:
            await asyncio.sleep(0.05)
            assert log._link.lease.until > time.monotonic()
        await log.stop()

    asyncio.run(main())


# -- commits in doubt -----------------------------------------------------------------------------------


@pytest.fixture
def proxy(postgres: Cluster) -> Iterator[Proxy]:
    made = Proxy(postgres.port)
    yield made
    made.close()


def through(proxy: Proxy, postgres: Cluster, database: Database) -> Database:
    return Database.parse(proxy.url(postgres), database.schema, allow_single=True)


@pytest.mark.parametrize(
    "arrives",
    [pytest.param(True, id="answer lost"), pytest.param(False, id="request lost", marks=pytest.mark.slow)],
)
def test_a_commit_without_an_answer_is_resolved_by_a_write(
    proxy: Proxy, postgres: Cluster, database: Database, arrives: bool
) -> None:
    seen: list[Record] = []
    log = PostgresLog(through(proxy, postgres, database), box=BOX, on_commit=seen.extend)
    lost = threading.Event()

    def swallow_answers(data: bytes) -> bytes:
        return b"" if lost.is_set() else data

    def watch(data: bytes) -> bytes:
        if b"COMMIT" in data and not lost.is_set():
            lost.set()
            return data if arrives else b""
        return b"" if lost.is_set() and not arrives else data

    async def main() -> None:
        log.start()
        assert await log.submit(append) == 1
        proxy.upwards, proxy.downwards = watch, swallow_answers
        doubtful = log.submit(append)
        assert await asyncio.to_thread(lost.wait, 30)
        await asyncio.to_thread(until, "the outage", lambda: log.unavailable is not None)
        with pytest.raises(DatabaseUnavailable):
            await log.submit(append)
        assert [record.last for record in seen] == [1], "nothing is routed before the outcome is known"
        proxy.heal()
        if arrives:
            assert await doubtful == 2
        else:
            with pytest.raises(DatabaseUnavailable):
                await doubtful
        expected = 3 if arrives else 2
        assert await log.submit(append) == expected
        assert [record.last for record in seen] == list(range(1, expected + 1))
        await log.stop()

    asyncio.run(main())
    assert offsets(postgres, database) == [1, 2, 3] if arrives else [1, 2]


def test_a_connection_that_is_cut_between_commits_is_opened_again(
    postgres: Cluster, database: Database
) -> None:
    log = PostgresLog(database, box=BOX)

    async def main() -> None:
        log.start()
        assert await log.submit(append) == 1
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'edn:%'"
            f" AND application_name LIKE '%{log.id[:20]}%'"
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                assert await log.submit(append) == 2
                break
            except DatabaseUnavailable:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
        assert [record.last for record in await log.read(0, 1 << 20)] == [1, 2]
        await log.stop()

    asyncio.run(main())


@pytest.mark.slow
def test_a_commit_that_is_not_replicated_is_not_acknowledged() -> None:
    """Cancelling its wait makes the server report success, with a warning only."""
    with cluster() as primary:
        database = new_database(primary)
        seen: list[Record] = []
        log = PostgresLog(database, box=BOX, on_commit=seen.extend)

        # The commit that waits must be that of the event, not a renewal of the lease.
        log.writer.idle_seconds = 600

        async def main() -> None:
            log.start()
            assert await log.submit(append) == 1
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            primary.execute("SELECT pg_reload_conf()")
            waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            stored, doubtful = 1, log.submit(append)
            deadline = time.monotonic() + 60
            while not primary.execute(waiting):
                assert time.monotonic() < deadline, "no commit waits"
                if doubtful.done():  # the server had not read the setting yet
                    stored = await doubtful
                    doubtful = log.submit(append)
                await asyncio.sleep(0.01)
            primary.execute(f"SELECT pg_cancel_backend(pid) FROM ({waiting}) AS w")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(doubtful), 3)
            # It is visible to everybody, and nobody acts on it.
            assert offsets(primary, database) == list(range(1, stored + 2))
            assert len(seen) == stored
            with psycopg.connect(primary.url, autocommit=True) as operator:
                operator.execute("SET synchronous_commit = local")
                operator.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
                operator.execute("SELECT pg_reload_conf()")
            assert await doubtful == stored + 1
            assert len(seen) == stored + 1
            await log.stop()

        asyncio.run(main())
