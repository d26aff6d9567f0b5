"""Databases that return space to the disk, in steps that need little of it."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.store.event_log import LogFull
from dispatcher.store.interface import Transaction
from dispatcher.store.sqlite.log import SqliteLog
from edn.cli.supervisor import BoundedLog
from edn.runtime import disk as storage

MEGABYTE = 1 << 20


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(storage.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
        yield connection


def fill(connection: sqlite3.Connection, rows: int) -> None:
    connection.executemany("INSERT INTO t (body) VALUES (?)", [(os.urandom(MEGABYTE),) for _ in range(rows)])
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_free_pages_count_as_room(database: sqlite3.Connection, tmp_path: Path) -> None:
    disk = storage.Disk(tmp_path / "x.db", watermark=0, reserve=0)
    fill(database, 8)
    assert disk.measure(database).reusable == 0
    database.execute("DELETE FROM t")
    assert disk.measure(database).reusable > 7 * MEGABYTE


def test_a_file_shrinks_in_bounded_steps_down_to_its_slack(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    fill(database, 16)
    database.execute("DELETE FROM t WHERE id > 2")
    steps, largest = 1, 0
    while storage.reclaim(database, 4 * MEGABYTE):
        steps += 1
        largest = max(largest, (tmp_path / "x.db-wal").stat().st_size)
    assert steps > 5
    # SQLite copies the WAL back every thousand pages; a step adds its own pages to that.
    assert largest < 8 * MEGABYTE
    assert (tmp_path / "x.db").stat().st_size < 8 * MEGABYTE
    while storage.reclaim(database, 0):
        pass
    assert (tmp_path / "x.db").stat().st_size < 3 * MEGABYTE
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_deleting_a_megabyte_does_not_write_a_megabyte(database: sqlite3.Connection, tmp_path: Path) -> None:
    fill(database, 8)
    database.execute("DELETE FROM t")
    assert (tmp_path / "x.db-wal").stat().st_size < MEGABYTE / 4


def test_a_step_of_truncation_is_bounded_in_bytes(tmp_path: Path) -> None:
    written: list[int] = []

    async def work() -> None:
        log = SqliteLog(tmp_path, on_commit=lambda _: None)
        log.start()
        try:

            def append(transaction: Transaction) -> None:
                for _ in range(40):
                    transaction.own.head += 1
                    transaction.connection.execute(
                        "INSERT INTO records VALUES (?, 1, 0, 1, NULL, ?, NULL)",
                        (transaction.head, os.urandom(MEGABYTE)),
                    )

            await log.submit(append)
            steps = 0

            def count(statement: str) -> None:
                nonlocal steps
                steps += statement.startswith("COMMIT")

            await log.upkeep(lambda t: t.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)"), bare=True)
            log._writer.connection.set_trace_callback(count)
            await log.truncate(40, 0)
            log._writer.connection.set_trace_callback(None)
            written.append((tmp_path / "dispatcher.db-wal").stat().st_size)
            assert steps >= 5
            assert log._reader.execute("SELECT count(*) FROM records").fetchone() == (1,)
        finally:
            await log.stop()

    asyncio.run(work())
    assert written[0] < MEGABYTE


def test_a_dispatcher_truncates_before_it_serves(tmp_path: Path) -> None:
    async def first() -> None:
        log = SqliteLog(tmp_path, on_commit=lambda _: None)
        log.start()

        def append(transaction: Transaction) -> None:
            for _ in range(10):
                transaction.append_control("s1", "join", incarnation=1)
            transaction.connection.execute("INSERT INTO servers VALUES ('s1', 'http://x', 'k', 1, 0)")
            transaction.connection.execute("INSERT INTO cursors VALUES ('s1', 7)")

        await log.submit(append)
        await log.stop()

    asyncio.run(first())
    log = SqliteLog(tmp_path, on_commit=lambda _: None)
    assert log.floor == 7
    assert log._reader.execute("SELECT min(last) FROM records").fetchone() == (8,)
    log.close()


def test_a_failing_truncation_fails_no_publisher(tmp_path: Path) -> None:
    """They once shared a transaction."""

    async def work() -> None:
        log = SqliteLog(tmp_path, on_commit=lambda _: None)
        log.start()

        def full(_: Transaction) -> None:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

        first = log.submit(lambda t: t.append_control("s1", "join", incarnation=1))
        failing = log.upkeep(full)
        last = log.submit(lambda t: t.append_control("s1", "join", incarnation=1))
        found = await asyncio.gather(first, failing, last, return_exceptions=True)
        assert found[0] == 1
        assert isinstance(found[1], LogFull)
        assert found[2] == 2
        await log.stop()

    asyncio.run(work())


def test_after_an_io_error_nothing_is_committed_and_the_process_is_to_end(tmp_path: Path) -> None:
    ended: list[bool] = []

    async def work() -> None:
        log = SqliteLog(tmp_path, on_commit=lambda _: None, on_failure=lambda: ended.append(True))
        log.start()

        def broken(_: Transaction) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

        with pytest.raises(Exception, match="could not be written"):
            await log.submit(broken)
        with pytest.raises(Exception, match="could not be written"):
            await log.submit(lambda t: t.append_control("s1", "join", incarnation=1))
        assert log.head == 0
        await log.stop()
        with closing(sqlite3.connect(tmp_path / "dispatcher.db")) as found:
            assert found.execute("SELECT count(*) FROM records").fetchone() == (0,)

    asyncio.run(work())
    assert ended == [True]


@pytest.mark.parametrize(
    ("code", "full", "failure"),
    [
        (sqlite3.SQLITE_FULL, True, False),
        (sqlite3.SQLITE_IOERR_SHMSIZE, True, False),
        (sqlite3.SQLITE_IOERR_WRITE, False, True),
        (sqlite3.SQLITE_IOERR_FSYNC, False, True),
        (sqlite3.SQLITE_CORRUPT, False, True),
        (sqlite3.SQLITE_BUSY, False, False),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, False, False),
    ],
)
def test_a_full_disk_is_told_from_a_broken_one(code: int, full: bool, failure: bool) -> None:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = code
    assert (storage.is_full(error), storage.is_failure(error)) == (full, failure)
    assert storage.is_full(OSError(errno.ENOSPC, "no space"))
    assert not storage.is_full(OSError(errno.EACCES, "denied"))


@pytest.mark.parametrize(
    ("free", "reusable", "wal", "short"),
    [
        (1000, 0, 0, False),
        (999, 0, 0, True),
        (400, 600, 0, False),
        (400, 600, 1, True),
        (250, 9000, 0, False),
        (249, 9000, 0, True),  # free pages alone do not do: new rows pass through the WAL
    ],
)
def test_what_counts_as_room(tmp_path: Path, free: int, reusable: int, wal: int, short: bool) -> None:
    disk = storage.Disk(tmp_path / "x.db", watermark=1000, reserve=0)
    assert (disk.shortage(storage.Space(free, reusable, wal)) is not None) == short


def test_the_reserve_is_made_with_plenty_and_freed_once(tmp_path: Path) -> None:
    disk = storage.Disk(tmp_path / "x.db", watermark=0, reserve=MEGABYTE)
    disk.keep_reserve(storage.Space(MEGABYTE, 0, 0))
    assert not disk.free_reserve()
    disk.keep_reserve(storage.Space(4 * MEGABYTE, 0, 0))
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= MEGABYTE
    assert disk.free_reserve()
    assert not disk.free_reserve()


def test_a_log_on_a_full_disk_drops_lines_counts_them_and_goes_on(tmp_path: Path) -> None:
    full = Path("/dev/full")
    log = BoundedLog(tmp_path / "x.log")
    log.write(b"first\n")
    log.close()
    log.path = full
    log.write(b"second\n")
    log.write(b"third\n")
    log.close()
    log.path = tmp_path / "x.log"
    log.write(b"fourth\n")
    log.close()
    assert (tmp_path / "x.log").read_text() == "first\nlog_lines_dropped count=2\nfourth\n"
    assert list(log.tail) == ["first", "second", "third", "fourth"]


def test_a_full_disk_is_announced_before_its_callers_are_answered(tmp_path: Path) -> None:
    """Readiness must not say "ready" to somebody whose event was just refused for want of room."""
    order: list[str] = []

    async def work() -> None:
        log = SqliteLog(tmp_path, on_commit=lambda _: None)
        log.on_full = lambda: order.append("announced")
        log.start()

        def full(_: Transaction) -> None:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

        with pytest.raises(LogFull):
            await log.submit(full)
        order.append("answered")
        await log.stop()

    asyncio.run(work())
    assert order == ["announced", "answered"]


def test_a_further_connection_writes_nothing(tmp_path: Path) -> None:
    """A reader is opened on a full disk, too."""
    path = tmp_path / "some.db"
    first = storage.connect(path)
    first.execute("CREATE TABLE t (x)")
    first.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = first.execute("PRAGMA data_version").fetchone()
    second = storage.connect(path, read_only=True)
    assert second.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    assert first.execute("PRAGMA data_version").fetchone() == before
    assert path.with_name("some.db-wal").stat().st_size == 0
    first.close()
    second.close()
