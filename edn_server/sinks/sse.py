"""Streams: what a subscription without a sink is told, read by whoever asks, from where they left off.

A stream's rows lie in the outbox like those of any address, but no courier takes them. A reader is given them
in order, each event under an **id** that names the row and how many of it follow; whoever comes back says
the last id that they saw (Last-Event-ID), and rows that they have seen the whole of go: they are **passed**.
Rows that nobody asked for go after `KEPT_SECONDS`, or when the stream has more than `KEPT_EVENTS`: they are
**dropped**. The last row of each kind is written down with the deletion. A reader who has not seen a row that
went for either reason gets a **gap**: a second reader of a stream never loses events without notice. Nobody
is refused, because the server cannot tell a second reader from the first one who lost the connection. A
reader who names no id begins with what is there, and is told only of dropped rows.

    {"id": "3f2a91c04b1d.17.0", "data": {"topic": …, "event": …, "matches": […]}}
    {"event": "gap", "data": {"reason": …}}
    {"event": "end", "data": {"reason": …}}

A line each; an empty one now and then says that the stream lives.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from edn.errors import InvalidInput, NotFound
from edn.model.namespace import public_id
from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.storage import addresses, outbox, usage
from edn_server.storage.interface import Connection
from edn_server.storage.writer import Job
from edn_server.subscriptions.view import RegistryView

KEPT_SECONDS = 86_400.0
KEPT_EVENTS = 10_000
#: what a stream that is no longer here has left may yet be fetched by the server where it is now
LEFT_SECONDS = 3600.0
#: rows that are read at once
PAGE = 64
#: a stream that says nothing says so, this often
SILENCE_SECONDS = 15.0
#: how often a reader looks whether the subscription still lives
LOOK_SECONDS = 1.0
#: how often rows that nobody asks for are looked for
TRIM_SECONDS = 30.0
#: rows that one transaction of that deletes
TRIM_ROWS = 1000

_ID = re.compile(r"([0-9a-f]{12})\.([0-9]{1,18})\.([0-9]{1,9})\Z")


@dataclass(frozen=True, slots=True)
class Position:
    """After an event of a row."""

    row: int = 0
    #: events of that row that are yet to be told
    left: int = 0


class StreamRows(Protocol):
    """Reads the rows of streams, and counts those that go."""

    #: begins the ids of this server's events
    prefix: str

    async def entries(
        self, address: str, after: int, rows: int
    ) -> tuple[list[tuple[int, list[bytes]]], outbox.Gone]:
        """Read the next rows after one, as ids and entries per event, and which rows went."""

    def subtract(self, notifications: int) -> None:
        """Count notifications that no longer wait."""


@owned("loop")
class Streams:
    """Lives on the event loop."""

    def __init__(
        self,
        view: RegistryView,
        rows: StreamRows,
        submit: Callable[[Job[int]], asyncio.Future[int]],
    ) -> None:
        """`submit` gives a job to the writer."""
        self._view = view
        self._rows = rows
        self._submit = submit
        self._readers: dict[str, set[asyncio.Event]] = {}
        self._prefix = rows.prefix.encode()

    def wake(self, addresses: Iterable[str]) -> None:
        """These addresses have new rows."""
        if self._readers:
            for address in addresses:
                for reader in self._readers.get(address, ()):
                    reader.set()

    async def follow(self, subscription: str, last_event_id: str | None) -> AsyncGenerator[bytes, None]:
        """The lines of a stream, without end as long as its subscription lives.

        Raises `NotFound` or `InvalidInput` before the first.
        """
        if not self._view.is_here(subscription):
            raise NotFound(f'no subscription "{public_id(subscription)[:80]}" here')
        address = addresses.stream_of(subscription)
        position, missed = self._position(last_event_id)
        if position.row:
            passed = Pass(address, position.row + (not position.left))
            self._rows.subtract(await self._submit(passed))
        return self._lines(subscription, address, position, missed)

    def _position(self, text: str | None) -> tuple[Position, str | None]:
        """Where a reader goes on, and why they may have missed something."""
        if not text:
            return Position(), None
        named = _ID.match(text)
        if named is None:
            raise InvalidInput("Last-Event-ID: not an id that this stream gave")
        if named[1].encode() != self._prefix:
            return Position(), "the subscription is on another server now"
        return Position(int(named[2]), int(named[3])), None

    async def _lines(
        self, subscription: str, address: str, position: Position, missed: str | None
    ) -> AsyncGenerator[bytes, None]:
        woken, silent, fresh = asyncio.Event(), 0.0, position == Position()
        self._readers.setdefault(address, set()).add(woken)
        try:
            while True:
                woken.clear()
                begun = 1 if position.left else 0
                # The marks are read after the rows: a deletion that the rows show, the marks show, too.
                page, gone = await self._rows.entries(address, position.row - begun, PAGE)
                if fresh:
                    position, fresh = Position(gone.passed), False
                last = max(gone.dropped, gone.passed)
                if last > position.row or (position.left and last == position.row):
                    position = Position(last)
                    missed = missed or (
                        "events that nobody read in time are gone"
                        if gone.dropped == last
                        else "another reader of this stream has passed events"
                    )
                    page = []
                if missed is not None:
                    yield _line("gap", missed)
                    missed = None
                    if not page:
                        continue
                for row, entries in page:
                    left = position.left if row == position.row else len(entries)
                    for entry in entries[len(entries) - left :]:
                        left -= 1
                        yield b'{"id":"%b.%d.%d","data":%b}\n' % (self._prefix, row, left, entry)
                    position = Position(row)
                if page:
                    continue
                if not self._view.is_here(subscription):
                    # One that has moved goes on where its reader comes back to.
                    if not self._view.is_elsewhere(subscription):
                        yield _line("end", "the subscription has ended")
                    return
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await woken.wait()
                    silent = 0.0
                except TimeoutError:
                    silent += LOOK_SECONDS
                    if silent >= SILENCE_SECONDS:
                        silent = 0.0
                        yield b"\n"
        finally:
            self._readers[address].discard(woken)
            if not self._readers[address]:
                del self._readers[address]

    async def trim(self) -> None:
        """Drop what nobody asked for in time."""
        now = clock.steady()
        gone = Trim(
            int((now - KEPT_SECONDS) * 1e6),
            int((now - LEFT_SECONDS) * 1e6),
            KEPT_EVENTS,
            self._view.is_here,
        )
        more = True
        while more:
            self._rows.subtract(await self._submit(gone))
            more = gone.more


def _line(event: str, reason: str) -> bytes:
    return msgspec.json.encode({"event": event, "data": {"reason": reason}}) + b"\n"


class Pass(Job[int]):
    """Deletes rows of a stream before one: they were read."""

    def __init__(self, address: str, row: int) -> None:
        self._address = address
        self._row = row

    def work(self, db: Connection) -> int:
        return outbox.pass_rows(db, self._address, self._row)


class Trim(Job[int]):
    """Rows of streams that are too old or too many, and those whose subscription has ended for a while.

    Reads the rows that go, and one counter per stream (`storage.usage`), however many rows there are. `more`
    says whether a step was too small for all.
    """

    def __init__(self, oldest: int, left: int, most: int, lives: Callable[[str], bool]) -> None:
        self._oldest = oldest
        self._left = left
        self._most = most
        self._lives = lives
        self.more = False

    def work(self, db: Connection) -> int:
        going: dict[str, list[tuple[int, int | None]]] = {}
        old = outbox.old_stream_rows(db, self._oldest, TRIM_ROWS)
        for address, id, batch in old:
            going.setdefault(address, []).append((id, batch))
        events = self._settle(db, going)
        left = TRIM_ROWS - len(old)
        for subscription, kept in usage.streams(db):
            if left <= 0:
                break
            address = addresses.stream_of(subscription)
            rows = self._ended(db, address, left) or self._surplus(db, address, kept, left)
            left -= len(rows)
            events += self._settle(db, {address: rows})
        self.more = left <= 0
        if not self.more:
            outbox.forget_marks(db, self._living)
        return events

    def _living(self, address: str) -> bool:
        return self._lives(addresses.streaming(address) or "")

    def _ended(self, db: Connection, address: str, most: int) -> list[tuple[int, int | None]]:
        return [] if self._living(address) else outbox.rows_before(db, address, self._left, most)

    def _surplus(self, db: Connection, address: str, kept: int, most: int) -> list[tuple[int, int | None]]:
        """The oldest rows beyond the events that a stream may have; its newest row stays in any case."""
        if kept <= self._most:
            return []
        going: list[tuple[int, int | None]] = []
        for id, batch, count in outbox.oldest_rows(db, address, most + 1)[:-1]:
            if kept <= self._most:
                break
            kept -= count
            going.append((id, batch))
        return going

    def _settle(self, db: Connection, going: dict[str, list[tuple[int, int | None]]]) -> int:
        events = 0
        for address, rows in going.items():
            if rows and self._living(address):
                outbox.mark(db, "dropped", address, rows[-1][0])
            events += outbox.settle(db, rows)
        return events
