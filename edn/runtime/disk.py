"""SQLite files that return space to the disk, and the free space of that disk.

Theory of operation
-------------------
A database here is in WAL mode and in `auto_vacuum=INCREMENTAL`. Deleted rows leave free pages in the file.
New rows reuse them, so free pages count as room. `reclaim` moves free pages beyond a slack to the end of the
file in bounded steps and cuts them off.

A deletion is a transaction, too: it writes pages to the WAL before any space is free. Two things make that
possible on a full disk. The process stops growing its database while the disk still has room (the caller's
watermark), and a **reserve**, a preallocated file beside the database, is deleted when that room is used up.
The reserve is created again when the disk has room for it.

    plenty ──room below the watermark──> short          nothing grows; deletions and vacuum go on
    short  ──a write fails with "full"─> reserve freed   the next deletions have room
    short  ──room above the watermark──> plenty          the reserve is created again

`secure_delete` is off: Debian's SQLite overwrites deleted content with zeros by default, which writes every
page of a deleted row to the WAL. Deleting a megabyte would need a megabyte.

An I/O error is different from a full disk. After a failed fsync it is unknown which pages reached the disk,
so the process must end and recover from the files (`is_failure`). `recover` copies the WAL of an earlier
process into the database and syncs it, before anything is read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edn.errors import Unavailable
from edn.runtime.secret_box import SecretBox
from edn.runtime.sql import Connection

T = TypeVar("T")

#: exit code of a process whose disk failed: restarting it recovers from the files
EXIT_DISK_FAILED = 5
#: size of the WAL file after a checkpoint
WAL_BYTES = 4 << 20
#: pages per step of `reclaim`; bounds its writes to the WAL
RECLAIM_PAGES = 256
#: bytes of free pages that stay in a file for new rows, if the disk has plenty
SLACK = 64 << 20
#: bytes needed to open a database and to delete from it
START_BYTES = 2 << 20
RESERVE = "reserve"

_FAILURES = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
#: I/O errors that a full disk causes: no room for the WAL's index
_SHM_FULL = frozenset(
    {sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMMAP}
)


#: rows of one INSERT: SQLite allows 32,766 parameters
MOST_INSERTED = 256
_MARKS = re.compile(r"\((\?, ?){0,99}\?\)")
#: value of `PRAGMA auto_vacuum`
_INCREMENTAL = 2


class SqliteConnection(sqlite3.Connection):
    """A connection with the dialect of SQLite (`edn.runtime.sql`)."""

    #: set by the stores that have sealed columns
    box: SecretBox

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """Execute a statement for many rows; an INSERT with few steps.

        sqlite3 takes a step per row, and each step gives the interpreter lock away: beside a busy event loop
        it waits for the lock more than it inserts.
        """
        insert, values, marks = sql.rpartition(" VALUES ")
        if not values or not _MARKS.fullmatch(marks):
            return super().executemany(sql, parameters)
        cursor, rows, at = self.cursor(), list(parameters), 0
        while at < len(rows):
            # Powers of two, so that few statements are prepared.
            count = min(MOST_INSERTED, 1 << (len(rows) - at).bit_length() - 1)
            given = [value for row in rows[at : at + count] for value in row]
            cursor.execute(f"{insert} VALUES {', '.join([marks] * count)}", given)
            at += count
        return cursor

    def any_of(self, column: str, parameter: int | None = None) -> str:
        return f"{column} IN (SELECT value FROM json_each(?{parameter or ''}))"

    def array(self, values: Collection[Any]) -> str:
        return msgspec.json.encode(values).decode()

    def indexed(self, table: str, index: str) -> str:
        return f"{table} INDEXED BY {index}"

    def insert_new(self, table: str, key: str, rows: Sequence[Sequence[Any]], returning: str) -> list[Any]:
        if not rows:
            return []
        marks = ", ".join("?" * len(rows[0]))
        text = f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT ({key}) DO NOTHING RETURNING {returning}"
        return [found[0] for row in rows if (found := self.execute(text, row).fetchone()) is not None]

    def last_id(self, table: str) -> int:
        found = self.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        return int(found[0]) if found else 0

    def next_ids(self, table: str, count: int) -> int:
        # Inserting the rows moves the sequence, also with given ids.
        return self.last_id(table) + 1

    def skip_id(self, table: str) -> int:
        query = "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = ? RETURNING seq"
        return int(self.execute(query, (table,)).fetchone()[0])

    def dump(self, value: Any) -> Any:
        return value

    def load(self, value: Any) -> Any:
        return value


def connect(path: Path, *, read_only: bool = False) -> SqliteConnection:
    """Opens a connection in autocommit mode, for one thread at a time."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, factory=SqliteConnection
    )
    connection.execute("PRAGMA busy_timeout = 10000")
    # Effective only in a file without tables and before WAL mode. In other files it would rewrite a page,
    # which fails on a full disk and which a reader must not do.
    if connection.execute("PRAGMA auto_vacuum").fetchone() != (_INCREMENTAL,):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def recover(connection: sqlite3.Connection) -> None:
    """Syncs the files of an earlier process; call it before anything else.

    The WAL's last transaction may be readable but not on disk, if that process ended between write and sync.
    A checkpoint syncs it.
    """
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def is_full(error: BaseException) -> bool:
    """Tells whether an error means that the disk is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF == sqlite3.SQLITE_FULL or code in _SHM_FULL)


def is_failure(error: BaseException) -> bool:
    """Tells whether an error means that the disk or the file can no longer be trusted."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _FAILURES and code not in _SHM_FULL


def end_process() -> None:
    """Ends the process without closing files, after a moment for pending responses."""
    time.sleep(0.2)
    os._exit(EXIT_DISK_FAILED)


def reclaim(connection: sqlite3.Connection, slack: int) -> bool:
    """Returns free pages beyond `slack` bytes to the disk, in one bounded step; True if there are more.

    Requires the writing connection outside a transaction.
    """
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    surplus = free - slack // size
    if surplus > 0:
        # `execute` would stop this statement after its first page.
        connection.executescript(f"PRAGMA incremental_vacuum({min(surplus, RECLAIM_PAGES)})")
    if surplus > RECLAIM_PAGES:
        return True
    # The checkpoint truncates the file; a concurrent reader only postpones that.
    connection.execute("PRAGMA busy_timeout = 100")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute("PRAGMA busy_timeout = 10000")
    return False


@dataclass(frozen=True, slots=True)
class Space:
    #: free bytes of the file system
    free: int
    #: bytes of free pages inside the database
    reusable: int
    #: bytes of the WAL; a checkpoint needs as many again
    wal: int

    @property
    def room(self) -> int:
        """Bytes by which the database may grow."""
        return self.free + self.reusable - self.wal


@dataclass(frozen=True, slots=True)
class Shortage:
    room: int
    needed: int

    def __str__(self) -> str:
        return f"disk: {max(0, self.room)} bytes free, {self.needed} needed"


class Disk:
    """The disk below one database, and its reserve. One thread at a time."""

    def __init__(self, database: Path, *, watermark: int, reserve: int) -> None:
        """`watermark`: bytes that must stay free; `reserve`: bytes of the reserve file."""
        self.watermark = watermark
        self._database = database
        self._wal = database.with_name(database.name + "-wal")
        self._reserve = database.with_name(RESERVE)
        self._reserve_bytes = reserve
        self._page_size = 0

    def measure(self, reader: Connection, /) -> Space:
        """Measures the space; cheap enough for every second."""
        if not self._page_size:
            (self._page_size,) = reader.execute("PRAGMA page_size").fetchone()
        (pages,) = reader.execute("PRAGMA freelist_count").fetchone()
        try:
            wal = self._wal.stat().st_size
        except FileNotFoundError:
            wal = 0
        return Space(free_bytes(self._database.parent), pages * self._page_size, wal)

    def shortage(self, space: Space, coming: int = 0) -> Shortage | None:
        """Returns the shortage, if any; `coming`: bytes that will be written in any case.

        Free pages inside the file count for the watermark, but new rows go through the WAL, so a quarter of
        the watermark must be free on the disk.
        """
        if space.room - coming < self.watermark:
            return Shortage(space.room - coming, self.watermark)
        if space.free - space.wal - coming < self.watermark // 4:
            return Shortage(space.free - space.wal - coming, self.watermark // 4)
        return None

    def slack(self, space: Space) -> int:
        """Returns the bytes of free pages that the file may keep: none on a nearly full disk."""
        return 0 if space.free < self.watermark else min(SLACK, self.watermark)

    def keep_reserve(self, space: Space) -> None:
        """Creates a missing reserve if the disk has plenty."""
        if self._reserve_bytes and space.free > self.watermark + 2 * self._reserve_bytes:
            allocate(self._reserve, self._reserve_bytes)

    def free_reserve(self) -> bool:
        """Deletes the reserve; True if there was one."""
        return free_reserve(self._reserve.parent)


class NoDisk(Disk):
    """The disk of a database on another machine, which others watch."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull), watermark=1 << 62, reserve=0)

    def measure(self, reader: Connection, /) -> Space:
        return Space(0, 0, 0)

    def shortage(self, space: Space, coming: int = 0) -> Shortage | None:
        return None

    def slack(self, space: Space) -> int:
        return 0

    def keep_reserve(self, space: Space) -> None:
        pass

    def free_reserve(self) -> bool:
        return False


def copy(database: Path, target: Path, *, watermark: int) -> None:
    """Writes a consistent, compact copy of a database in use; in any thread.

    Raises `Unavailable` if the copy would leave less than the watermark free.
    """
    with contextlib.closing(connect(database)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (unused,) = connection.execute("PRAGMA freelist_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        needed, free = (pages - unused) * size + watermark, free_bytes(target.parent)
        if free < needed:
            raise Unavailable(f"{Shortage(free, needed)} for a copy of {database.name}", retry_after=60)
        try:
            connection.execute("VACUUM INTO ?", (str(target),))
        except sqlite3.Error:
            target.unlink(missing_ok=True)
            raise
        target.chmod(0o600)


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def allocate(path: Path, size: int) -> None:
    """Creates a file with allocated blocks, or none if the disk is full."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # it exists, or the disk is full
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
    finally:
        os.close(handle)


def free_reserve(folder: Path) -> bool:
    try:
        (folder / RESERVE).unlink()
    except OSError:
        return False
    return True


def open_with_room(folder: Path, open_database: Callable[[], T]) -> T:
    """Opens a database as soon as its disk has room; reports the wait on stdout.

    A network whose disk was filled by another program recovers without help.
    """
    reported = False
    # The folder itself may not exist yet.
    here = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    while True:
        if free_bytes(here) < START_BYTES:
            free_reserve(folder)
        try:
            if free_bytes(here) >= START_BYTES:
                return open_database()
        except (OSError, sqlite3.Error) as error:
            if not is_full(error):
                raise
            free_reserve(folder)
        if not reported:
            shortage = Shortage(free_bytes(here), START_BYTES)
            with contextlib.suppress(OSError):
                print(json.dumps({"ready": False, "waiting": str(shortage)}), flush=True)  # noqa: T201
                print(f"waiting_for_disk folder={folder} {shortage}", file=sys.stderr, flush=True)  # noqa: T201
            reported = True
        time.sleep(0.5)


# -- permissions: data files contain events, signing keys and digests of API keys ------------------------


def keep_private() -> None:
    """Restricts new files of this process to their owner."""
    os.umask(0o077)


def protect(folder: Path) -> None:
    """Restricts a data folder and its files to their owner."""
    for path in (folder, *folder.rglob("*")):
        # The file may belong to another user or be gone; a link's mode is its target's.
        with contextlib.suppress(OSError):
            if not path.is_symlink():
                path.chmod(0o700 if path.is_dir() else 0o600)
