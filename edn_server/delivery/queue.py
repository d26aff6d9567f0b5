"""The rows of one address that are in memory.

The writer passes committed rows on in memory, so that a calm address never reads the outbox. `rows` is a
prefix of the address's ready rows, oldest first. It is *complete* while no further ready row is in the
database only; only then a new row may be appended. Otherwise new rows stay in the database, and the worker
reads the next page when the rows in memory are delivered. A page may contain a row whose announcement arrives
after the read; `append` ignores it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from edn.runtime.ownership import owned
from edn_server.storage.outbox import Page, Row

#: rows of one address in memory
PAGE = 64
#: rows of all addresses in memory; beyond it a row stays in the database if its address has one in memory
MOST_ROWS = 100_000


class Memory:
    """Counts the rows of all queues."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows = 0


@owned("loop")
class AddressQueue:
    __slots__ = (
        "_is_stale",
        "_memory",
        "_newest",
        "_resting",
        "address",
        "asides",
        "is_complete",
        "is_hurried",
        "is_rewound",
        "is_unordered",
        "rows",
        "task",
    )

    def __init__(self, address: str, memory: Memory, *, is_complete: bool) -> None:
        self.address = address
        self.rows: deque[Row] = deque()
        self.is_complete = is_complete
        #: the worker of this address
        self.task: asyncio.Task[None] | None = None
        self._memory = memory
        #: id of the newest row that was ever in memory
        self._newest = 0
        #: whether rows were added in the database since `begin_read`
        self._is_stale = False
        self._resting: asyncio.Event | None = None
        #: of an unordered address (`unordered`): new rows wake its worker; rows that are retried alone
        self.is_unordered = False
        self.asides = 0
        #: whether the outbox must be read from its beginning, and whether retries must not wait
        self.is_rewound = self.is_hurried = False

    def append(self, row: Row) -> None:
        """Append a committed row, or leave it in the database."""
        rows = self.rows
        if row.id <= self._newest:
            return
        if self.is_complete and (not rows or (len(rows) < PAGE and self._memory.rows < MOST_ROWS)):
            rows.append(row)
            self._newest = row.id
            self._memory.rows += 1
        else:
            self.invalidate()

    def invalidate(self) -> None:
        """Have the database read again once the rows in memory are delivered."""
        self.is_complete = False
        self._is_stale = True

    def begin_read(self) -> None:
        self._is_stale = False

    def add_page(self, page: Page) -> None:
        """Add the rows that were read since `begin_read`; memory held none."""
        self.rows.extend(page.rows)
        if page.rows:
            self._newest = max(self._newest, page.rows[-1].id)
        self._memory.rows += len(page.rows)
        # Nothing may be appended behind an undecided row; without rows the worker ends, see `Notifier`.
        blocked = page.is_blocked and bool(page.rows)
        self.is_complete = not (page.has_more or blocked or self._is_stale)

    def remove(self, delivered: Sequence[Row]) -> None:
        """Remove rows, normally the oldest."""
        before = len(self.rows)
        if all(mine.id == row.id for mine, row in zip(self.rows, delivered, strict=False)):
            for _ in range(min(before, len(delivered))):
                self.rows.popleft()
        else:
            gone = {row.id for row in delivered}
            self.rows = deque(row for row in self.rows if row.id not in gone)
        self._memory.rows -= before - len(self.rows)

    def clear(self) -> None:
        """Free the memory; the rows are read again."""
        if self.rows:
            self._memory.rows -= len(self.rows)
            self.rows.clear()
        self.is_complete = False

    # -- waiting ----------------------------------------------------------------------------------------

    async def rest(self, seconds: float) -> None:
        """Wait, or until `hurry`."""
        self._resting = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await self._resting.wait()
        except TimeoutError:
            pass
        finally:
            self._resting = None

    def hurry(self) -> None:
        """End the rest."""
        if self._resting is not None:
            self._resting.set()
