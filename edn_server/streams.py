"""Streams: what a subscription without a sink is told, read by whoever asks, from where they left off.

A stream's rows lie in the outbox like those of any address, but no courier takes them. A reader is given them
in order, each event under an **id** that names the row and how many of it follow; whoever comes back says
the last id that they saw (Last-Event-ID), and rows that they have seen the whole of go. Rows that nobody
asked for go after `KEPT_SECONDS`, or when the stream has more than `KEPT_EVENTS`: which was the last of them
is written down, so that a reader who missed some is told so, by a **gap**.

    {"id": "3f2a91c04b1d.17.0", "data": {"topic": …, "event": …, "matches": […]}}
    {"event": "gap", "data": {"reason": …}}
    {"event": "end", "data": {"reason": …}}

A line each; an empty one now and then says that the stream lives.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass

import msgspec

from edn import clock
from edn.errors import InvalidInput, NotFound
from edn_server import outbox
from edn_server.hosting import Hosting
from edn_server.notifier import Notifier
from edn_server.writer import Job

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

_ID = re.compile(r"([0-9a-f]{12})\.([0-9]{1,18})\.([0-9]{1,9})\Z")
_DROPPED = "dropped "


@dataclass(frozen=True, slots=True)
class Position:
    """After an event of a row."""

    row: int = 0
    #: events of that row that are yet to be told
    left: int = 0


class Streams:
    """Lives on the event loop, like the notifier, whose thread reads the rows."""

    def __init__(
        self,
        hosting: Hosting,
        notifier: Notifier,
        submit: Callable[[Job[int]], asyncio.Future[int]],
        dropped: dict[str, int],
    ) -> None:
        """`submit` gives a job to the writer; `dropped`: the last row of each address that went unread."""
        self._hosting = hosting
        self._notifier = notifier
        self._submit = submit
        self._dropped = dropped
        self._readers: dict[str, set[asyncio.Event]] = {}
        #: begins the ids of this server's events
        self._prefix = notifier.prefix.encode()

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
        if subscription not in self._hosting.numbers:
            raise NotFound(f'no subscription "{subscription[:80]}" here')
        address = outbox.stream_of(subscription)
        position, missed = self._position(last_event_id)
        if position.row:
            passed = await self._submit(outbox.Pass(address, position.row + (not position.left)))
            self._notifier.counters.backlog -= passed  # not in one: it changes while one waits
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
        woken, silent = asyncio.Event(), 0.0
        self._readers.setdefault(address, set()).add(woken)
        try:
            while True:
                woken.clear()
                dropped = self._dropped.get(address, 0)
                if dropped > position.row or (position.left and dropped == position.row):
                    position = Position(dropped)
                    missed = missed or "events that nobody read in time are gone"
                if missed is not None:
                    yield _line("gap", missed)
                    missed = None
                begun = 1 if position.left else 0
                page = await self._notifier.entries(address, position.row - begun, PAGE)
                for row, entries in page:
                    left = position.left if row == position.row else len(entries)
                    for entry in entries[len(entries) - left :]:
                        left -= 1
                        yield b'{"id":"%b.%d.%d","data":%b}\n' % (self._prefix, row, left, entry)
                    position = Position(row)
                if page:
                    continue
                if subscription not in self._hosting.numbers:
                    # One that has moved goes on where its reader comes back to.
                    if subscription not in self._hosting.elsewhere:
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
        now, living = clock.now(), self._hosting.numbers
        gone = Trim(
            int((now - KEPT_SECONDS) * 1e6),
            int((now - LEFT_SECONDS) * 1e6),
            KEPT_EVENTS,
            lambda subscription: subscription in living,
        )
        dropped = await self._submit(gone)
        self._notifier.counters.backlog -= dropped
        self._dropped.update(gone.dropped)


def _line(event: str, reason: str) -> bytes:
    return msgspec.json.encode({"event": event, "data": {"reason": reason}}) + b"\n"


def read_dropped(db: sqlite3.Connection) -> dict[str, int]:
    """What was written down of rows that went unread, by address."""
    found = db.execute("SELECT name, value FROM meta WHERE name >= ? AND name < ?", (_DROPPED, "dropped!"))
    return {name[len(_DROPPED) :]: row for name, row in found}


class Trim(Job[int]):
    """Rows of streams that are too old or too many, and those whose subscription has ended for a while."""

    def __init__(self, oldest: int, left: int, most: int, lives: Callable[[str], bool]) -> None:
        self._oldest = oldest
        self._left = left
        self._most = most
        self._lives = lives
        #: address → last row that went
        self.dropped: dict[str, int] = {}

    def work(self, db: sqlite3.Connection) -> int:
        events = 0
        for address in outbox.stream_addresses(db):
            living = self._lives(address[len(outbox.STREAM) :])
            rows = db.execute(
                "SELECT id, batch, events, created FROM outbox WHERE address = ? ORDER BY id DESC", (address,)
            ).fetchall()
            kept, going = 0, []
            for id, batch, count, created in rows:
                kept += count
                old = created < (self._oldest if living else self._left)
                if old or (kept > self._most and kept > count):
                    going.append((id, batch))
            if not going:
                continue
            events += outbox.Settle(going).work(db)
            if living:
                self.dropped[address] = going[0][0]
                db.execute(
                    "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2",
                    (_DROPPED + address, going[0][0]),
                )
            else:
                db.execute("DELETE FROM meta WHERE name = ?", (_DROPPED + address,))
        return events
