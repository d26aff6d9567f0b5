"""The SQLite writer: groups, savepoints, failures, order of results."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edn.runtime import disk, group_writer
from edn.runtime.disk import SqliteConnection
from edn.runtime.group_writer import Mode, Operation
from edn.runtime.sqlite_writer import SqliteWriter

WAIT = 30


class Recorded(Operation[SqliteConnection]):
    """Writes a number, or does something else, and records what happens to it."""

    __slots__ = ("function", "happened", "number", "wanted")

    def __init__(
        self,
        number: int,
        function: Callable[[], None] = lambda: None,
        mode: Mode = Mode.SHARED,
        size: int = 0,
        wanted: bool = True,
    ) -> None:
        super().__init__(mode, size)
        self.number, self.function, self.wanted = number, function, wanted
        self.happened: list[str] = []

    def is_wanted(self) -> bool:
        return self.wanted

    def work(self, context: SqliteConnection) -> Any:
        self.happened.append("worked")
        context.execute("INSERT INTO numbers VALUES (?)", (self.number,))
        self.function()
        return self.number

    def undo(self) -> None:
        self.happened.append("undone")


class Recorder(SqliteWriter[SqliteConnection]):
    def __init__(self, connection: SqliteConnection, **more: Any) -> None:
        self.groups: list[list[int]] = []
        self.errors: list[Exception | None] = []
        self.failures: list[bool] = []
        self.answered = threading.Semaphore(0)
        super().__init__(connection, name="test", on_failure=lambda: self.failures.append(True), **more)

    def begin(self) -> SqliteConnection:
        return self.connection

    def finish(
        self,
        context: SqliteConnection,
        operations: Sequence[Operation[SqliteConnection]],
        error: Exception | None,
    ) -> None:
        assert not self.connection.in_transaction or disk.is_failure(error or Exception())
        self.groups.append([one.number for one in operations if isinstance(one, Recorded)])
        self.errors.append(error)
        self.answered.release()

    def run(self, operations: Sequence[Recorded]) -> None:
        """Queue all of them, then let the thread begin."""
        for operation in operations:
            self.put(operation)
        self.start()
        self._queue.put(None)
        self._thread.join(WAIT)
        assert not self._thread.is_alive()


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[SqliteConnection]:
    made = disk.connect(tmp_path / "x.db")
    made.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
    yield made
    made.close()


def stored(connection: SqliteConnection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY number")]


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def full() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


@pytest.mark.parametrize(
    ("modes", "groups"),
    [
        ([Mode.SHARED] * 4, [[0, 1, 2, 3]]),
        ([Mode.SHARED, Mode.FRESH, Mode.SHARED, Mode.FRESH], [[0], [1, 2], [3]]),
        ([Mode.SHARED, Mode.ALONE, Mode.SHARED, Mode.SHARED], [[0], [1], [2, 3]]),
        ([Mode.BARE, Mode.SHARED, Mode.BARE, Mode.ALONE], [[0], [1], [2], [3]]),
    ],
)
def test_modes_say_who_shares_a_transaction(
    connection: SqliteConnection, modes: list[Mode], groups: list[list[int]]
) -> None:
    writer = Recorder(connection)
    writer.run([Recorded(number, mode=mode) for number, mode in enumerate(modes)])
    assert writer.groups == groups
    assert stored(connection) == [0, 1, 2, 3]


def test_a_transaction_is_bounded_in_operations_and_bytes(
    connection: SqliteConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_writer, "GROUP_BYTES", 100)
    writer = Recorder(connection, group=3)
    sizes = [0, 0, 0, 0, 60, 60, 200, 0]
    writer.run([Recorded(number, size=size) for number, size in enumerate(sizes)])
    assert writer.groups == [[0, 1, 2], [3, 4, 5], [6], [7]]


def test_an_operation_that_fails_alone_is_undone_alone(connection: SqliteConnection) -> None:
    writer = Recorder(connection)
    operations = [Recorded(0), Recorded(1, failing(ValueError("no"))), Recorded(2)]
    writer.run(operations)
    assert stored(connection) == [0, 2]
    assert [one.happened for one in operations] == [["worked"], ["worked", "undone"], ["worked"]]
    assert [type(one.error) for one in operations] == [type(None), ValueError, type(None)]
    assert [one.result for one in operations] == [0, None, 2]
    assert writer.errors == [None]


def test_a_full_disk_takes_the_whole_transaction_and_not_the_next(connection: SqliteConnection) -> None:
    writer = Recorder(connection)
    operations = [Recorded(0), Recorded(1, failing(full())), Recorded(2), Recorded(3, mode=Mode.FRESH)]
    writer.run(operations)
    assert stored(connection) == [3]
    assert [one.happened for one in operations] == [
        ["worked", "undone"],
        ["worked", "undone"],
        [],
        ["worked"],
    ]
    assert [str(error) for error in writer.errors] == ["database or disk is full", "None"]
    assert writer.failures == []


def test_after_an_io_error_everything_fails_and_the_file_is_left(connection: SqliteConnection) -> None:
    broken = sqlite3.OperationalError("disk I/O error")
    broken.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    writer = Recorder(connection)
    writer.run([Recorded(0), Recorded(1, failing(broken)), Recorded(2, mode=Mode.FRESH)])
    assert writer.groups == [[0, 1], [2]]
    assert [type(error) for error in writer.errors] == [sqlite3.OperationalError, RuntimeError]
    assert writer.failures == [True]
    writer.close()
    connection.rollback()
    assert stored(connection) == []


def test_unwanted_operations_are_not_carried_out(connection: SqliteConnection) -> None:
    writer = Recorder(connection)
    unwanted = Recorded(1, wanted=False)
    writer.run([Recorded(0), unwanted, Recorded(2)])
    assert stored(connection) == [0, 2]
    assert (writer.groups, unwanted.happened) == ([[0, 2]], [])


def test_closing_commits_what_is_queued(tmp_path: Path) -> None:
    made = disk.connect(tmp_path / "y.db")
    made.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
    writer = Recorder(made)
    writer.start()
    for number in range(100):
        writer.put(Recorded(number))
    writer.close()
    reopened = disk.connect(tmp_path / "y.db")
    assert stored(reopened) == list(range(100))
    reopened.close()
