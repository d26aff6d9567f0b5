"""SQLite files that return space to the disk, and the state of that disk.

Theory of operation
-------------------
A database here is in WAL mode and in `auto_vacuum=INCREMENTAL`. Deleted rows leave free pages in the file.
New rows reuse them, so free pages count as room. `reclaim` moves free pages beyond a slack to the end of the
file in bounded steps and cuts them off.

A deletion is a transaction, too: it writes a few pages to the WAL before any space is free. Two things keep
that possible on a full disk. The process stops growing its database while the disk still has room (the
caller's watermark), and a **reserve**, a preallocated file beside the database, is deleted when even that
room is gone. The reserve is created again when the disk has room for it.

    plenty ──room below the watermark──> short          nothing grows; deletions and vacuum go on
    short  ──a write fails with "full"─> reserve freed   the next deletions have room
    short  ──room above the watermark──> plenty          the reserve is created again

`secure_delete` is off: Debian's SQLite overwrites deleted content with zeros by default, which writes every
page of a deleted row to the WAL. Deleting a megabyte would need a megabyte.

An I/O error is different from a full disk. After a failed fsync nobody knows which pages reached the disk, so
a process that sees one must end and recover from the files (`is_failure`). `connect` copies a WAL that an
earlier process left into the database and syncs it, before anything is read from it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from edn.errors import Unavailable

T = TypeVar("T")

#: exit code of a process whose disk failed: restarting it recovers from the files
EXIT_DISK_FAILED = 5
#: a WAL that was copied into the database is cut to this size
WAL_BYTES = 4 << 20
#: pages that one step of `reclaim` moves; bounds what it writes to the WAL
RECLAIM_PAGES = 256
#: bytes of free pages that stay in a file for new rows, while the disk has plenty
SLACK = 64 << 20
#: bytes that a process needs to open its database and begin to delete
START_BYTES = 2 << 20
RESERVE = "reserve"

_FAILURES = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
#: extended codes of I/O errors that a full disk causes: no room for the WAL's index
_SHM_FULL = frozenset(
    {sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMMAP}
)


#: as `PRAGMA auto_vacuum` answers it
_INCREMENTAL = 2


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode that any one thread at a time may use; the caller closes it."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA busy_timeout = 10000")
    # Effective only in a file without tables, and before WAL mode writes its first page. In every other file
    # it would write a page again, which a full disk refuses and a reader must not do.
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
    """Make everything durable that the files of an earlier process hold; before anything else is done.

    The WAL's last transaction may be readable without being on disk, if that process ended between its write
    and its sync. Copying the WAL into the database syncs it.
    """
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def is_full(error: BaseException) -> bool:
    """Return whether an error means that the disk has no room."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF == sqlite3.SQLITE_FULL or code in _SHM_FULL)


def is_failure(error: BaseException) -> bool:
    """Return whether an error means that the disk, or the file, can no longer be trusted."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _FAILURES and code not in _SHM_FULL


def end_process() -> None:
    """End at once, without closing any file; answers that are on their way get a moment."""
    time.sleep(0.2)
    os._exit(EXIT_DISK_FAILED)


def reclaim(connection: sqlite3.Connection, slack: int) -> bool:
    """Return free pages beyond `slack` bytes to the disk, one bounded step; whether there are more.

    Outside a transaction, on the writing connection.
    """
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    surplus = free - slack // size
    if surplus > 0:
        # A script, because `execute` stops this statement after its first page.
        connection.executescript(f"PRAGMA incremental_vacuum({min(surplus, RECLAIM_PAGES)})")
    if surplus > RECLAIM_PAGES:
        return True
    # The file is cut when the WAL has been copied. A reader in the way only postpones that.
    connection.execute("PRAGMA busy_timeout = 100")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute("PRAGMA busy_timeout = 10000")
    return False


@dataclass(frozen=True, slots=True)
class Space:
    #: bytes that the file system has for this process
    free: int
    #: bytes of free pages inside the database
    reusable: int
    #: bytes of the WAL, which needs as many again when it is copied into the database
    wal: int

    @property
    def room(self) -> int:
        """Bytes by which the database may grow."""
        return self.free + self.reusable - self.wal


@dataclass(frozen=True, slots=True)
class Shortage:
    """Too little room: how much there is and how much is needed."""

    room: int
    needed: int

    def __str__(self) -> str:
        return f"disk: {max(0, self.room)} bytes free, {self.needed} needed"


class Disk:
    """The disk below one database, and its reserve. One thread at a time."""

    def __init__(self, database: Path, *, watermark: int, reserve: int) -> None:
        """`watermark`: room that must be left; `reserve`: bytes of the reserve file."""
        self.watermark = watermark
        self._database = database
        self._wal = database.with_name(database.name + "-wal")
        self._reserve = database.with_name(RESERVE)
        self._reserve_bytes = reserve
        self._page_size = 0

    def measure(self, reader: sqlite3.Connection) -> Space:
        """Read the space; cheap enough for every second."""
        if not self._page_size:
            (self._page_size,) = reader.execute("PRAGMA page_size").fetchone()
        (pages,) = reader.execute("PRAGMA freelist_count").fetchone()
        try:
            wal = self._wal.stat().st_size
        except FileNotFoundError:
            wal = 0
        return Space(free_bytes(self._database.parent), pages * self._page_size, wal)

    def shortage(self, space: Space, coming: int = 0) -> Shortage | None:
        """Return what is missing, if anything is; `coming`: bytes that will be written in any case.

        Free pages inside the file do for the watermark, but new rows pass through the WAL first, so a quarter
        of it must be free on the disk itself.
        """
        if space.room - coming < self.watermark:
            return Shortage(space.room - coming, self.watermark)
        if space.free - space.wal - coming < self.watermark // 4:
            return Shortage(space.free - space.wal - coming, self.watermark // 4)
        return None

    def slack(self, space: Space) -> int:
        """Bytes of free pages that the file may keep: none when others on this disk may need them."""
        return 0 if space.free < self.watermark else min(SLACK, self.watermark)

    def keep_reserve(self, space: Space) -> None:
        """Create the reserve if it is missing and the disk has plenty."""
        if self._reserve_bytes and space.free > self.watermark + 2 * self._reserve_bytes:
            allocate(self._reserve, self._reserve_bytes)

    def free_reserve(self) -> bool:
        """Give the reserve to whoever deletes now; whether there was one."""
        return free_reserve(self._reserve.parent)


def copy(database: Path, target: Path, *, watermark: int) -> None:
    """Write a whole and compact copy of a database in use, as of one moment; in any thread.

    Raises `Unavailable` if the copy would leave less than the watermark free: a backup must not stop the
    network that it is made of.
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
    """Create a file of a size that occupies its blocks, or none."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # it is there, or the disk is full after all
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
    """Open a database when its disk has room to do so; until then wait, and say so on stdout.

    A network whose disk was filled by something else thus comes back without anybody's help.
    """
    told = False
    # The folder itself may be missing yet.
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
        if not told:
            shortage = Shortage(free_bytes(here), START_BYTES)
            with contextlib.suppress(OSError):
                print(json.dumps({"ready": False, "waiting": str(shortage)}), flush=True)  # noqa: T201
                print(f"waiting_for_disk folder={folder} {shortage}", file=sys.stderr, flush=True)  # noqa: T201
            told = True
        time.sleep(0.5)
