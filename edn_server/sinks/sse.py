"""Serves the streams of subscriptions without a sink; readers resume where they stopped.

The rows of a stream are in the outbox, but no worker delivers them. A reader gets them in order. The **id**
of an event contains the row and the number of events that follow in it. A reader that reconnects sends the
last id it saw (Last-Event-ID), and the rows that it has read completely are deleted: they are **passed**.
Unread rows are deleted after `KEPT_SECONDS`, or beyond `KEPT_EVENTS` per stream: they are **dropped**. The
last row of each kind is stored with the deletion. A reader that has missed a deleted row gets a **gap**, so
that a second reader never loses events without notice. No reader is refused, because the server cannot
distinguish a second reader from a first one that lost its connection. A reader without an id starts with the
rows that exist, and gets a gap only for dropped rows.

    {"id": "3f2a91c04b1d.17.0", "data": {"topic": …, "event": …, "matches": […]}}
    {"event": "gap", "data": {"reason": …}}
    {"event": "end", "data": {"reason": …}}

Each is one line; empty lines keep an idle connection alive.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from edn.errors import InvalidInput, NotFound
from edn.model.namespace import public_id
from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.storage import addresses, outbox, usage
from edn_server.storage.interface import Connection
from edn_server.storage.writer import Call, Job
from edn_server.subscriptions.view import RegistryView

KEPT_SECONDS = 86_400.0
KEPT_EVENTS = 10_000
#: seconds for which rows of a migrated stream stay for its new server
LEFT_SECONDS = 3600.0
#: rows per read
PAGE = 64
#: interval between empty lines on an idle stream
SILENCE_SECONDS = 15.0
#: interval between checks that the subscription lives
LOOK_SECONDS = 1.0
#: interval between deletions of unread rows
TRIM_SECONDS = 30.0
#: rows that one such transaction deletes
TRIM_ROWS = 1000

_ID = re.compile(r"([0-9a-f]{12})\.([0-9]{1,18})\.([0-9]{1,9})\Z")


@dataclass(frozen=True, slots=True)
class Position:
    """A position after an event of a row."""

    row: int = 0
    #: unread events of that row
    left: int = 0


class StreamRows(Protocol):
    """Reads the rows of streams, and counts deleted ones."""

    #: prefix of this server's event ids
    prefix: str

    async def entries(
        self, address: str, after: int, rows: int
    ) -> tuple[list[tuple[int, list[bytes]]], outbox.Gone]:
        """Returns the rows after one, as id and entries per event, and the deleted rows."""

    def subtract(self, notifications: int) -> None:
        """Reduces the backlog."""


@owned("loop")
class Streams:
    def __init__(
        self,
        view: RegistryView,
        rows: StreamRows,
        submit: Callable[[Job[int]], asyncio.Future[int]],
    ) -> None:
        """`submit` queues a job for the writer."""
        self._view = view
        self._rows = rows
        self._submit = submit
        self._readers: dict[str, set[asyncio.Event]] = {}
        self._prefix = rows.prefix.encode()

    def wake(self, addresses: Iterable[str]) -> None:
        """Wakes the readers of addresses with new rows."""
        if self._readers:
            for address in addresses:
                for reader in self._readers.get(address, ()):
                    reader.set()

    async def follow(self, subscription: str, last_event_id: str | None) -> AsyncGenerator[bytes, None]:
        """Returns the lines of a stream, until its subscription ends.

        Raises `NotFound` or `InvalidInput` before the first line.
        """
        if not self._view.is_here(subscription):
            raise NotFound(f'subscription "{public_id(subscription)[:80]}" does not exist on this server')
        address = addresses.stream_of(subscription)
        position, missed = self._position(last_event_id)
        if position.row:
            before = position.row + (not position.left)
            delete = Call(lambda db: outbox.pass_rows(db, address, before), fresh=False)
            self._rows.subtract(await self._submit(delete))
        return self._lines(subscription, address, position, missed)

    def _position(self, text: str | None) -> tuple[Position, str | None]:
        """Returns where a reader resumes, and the reason for a gap."""
        if not text:
            return Position(), None
        named = _ID.match(text)
        if named is None:
            raise InvalidInput("Last-Event-ID must be an id of this stream")
        if named[1].encode() != self._prefix:
            return Position(), "the subscription has migrated to another server"
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
                # The marks are read after the rows, so they include every deletion that affects the rows.
                page, gone = await self._rows.entries(address, position.row - begun, PAGE)
                if fresh:
                    position, fresh = Position(gone.passed), False
                last = max(gone.dropped, gone.passed)
                if last > position.row or (position.left and last == position.row):
                    position = Position(last)
                    missed = missed or (
                        "unread events were dropped"
                        if gone.dropped == last
                        else "another reader of this stream has read events"
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
                    # A reader of a migrated stream reconnects to its new server.
                    if not self._view.has_migrated(subscription):
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
        """Deletes rows that nobody read in time."""
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


@dataclass(slots=True)
class Trim(Job[int]):
    """Deletes rows of streams that are too old or too many, or whose subscription has ended.

    Reads only the rows that it deletes and one counter per stream (`storage.usage`). `more` is set if one
    step was not enough.
    """

    oldest: int
    left: int
    most: int
    lives: Callable[[str], bool]
    more: bool = field(default=False, init=False)

    def work(self, db: Connection) -> int:
        going: dict[str, list[tuple[int, int | None]]] = {}
        old = outbox.old_stream_rows(db, self.oldest, TRIM_ROWS)
        for address, id, frame_id in old:
            going.setdefault(address, []).append((id, frame_id))
        events = self._drop(db, going)
        left = TRIM_ROWS - len(old)
        for subscription, kept in usage.streams(db):
            if left <= 0:
                break
            address = addresses.stream_of(subscription)
            rows = self._ended(db, address, left) or self._surplus(db, address, kept, left)
            left -= len(rows)
            events += self._drop(db, {address: rows})
        self.more = left <= 0
        if not self.more:
            outbox.forget_marks(db, self._living)
        return events

    def _living(self, address: str) -> bool:
        return self.lives(addresses.streaming(address) or "")

    def _ended(self, db: Connection, address: str, most: int) -> list[tuple[int, int | None]]:
        return [] if self._living(address) else outbox.rows_before(db, address, self.left, most)

    def _surplus(self, db: Connection, address: str, kept: int, most: int) -> list[tuple[int, int | None]]:
        """Returns the oldest rows beyond a stream's maximum of events; its newest row always stays."""
        if kept <= self.most:
            return []
        going: list[tuple[int, int | None]] = []
        for id, frame_id, count in outbox.oldest_rows(db, address, most + 1)[:-1]:
            if kept <= self.most:
                break
            kept -= count
            going.append((id, frame_id))
        return going

    def _drop(self, db: Connection, going: dict[str, list[tuple[int, int | None]]]) -> int:
        events = 0
        for address, rows in going.items():
            if rows and self._living(address):
                outbox.mark(db, "dropped", address, rows[-1][0])
            events += outbox.settle(db, rows)
        return events
