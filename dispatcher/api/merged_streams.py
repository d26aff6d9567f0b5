"""A stream over a subtree: the streams of its members, read side by side and told as one.

An event's id tells how far each member has been read: the topic's number and the member's own last id, for
every member that has said something since the connection was made.

    1c9e04:3f2a91c04b1d.17.0,7b20:3f2a91c04b1d.18.2

Whoever comes back with it goes on there at each of them. A member that it does not name goes on with the
first thing that is still there: what was seen before was taken away when the connection was made. So an id
is as long as the number of topics that speak, and not of all; beyond `LONGEST` the connection ends, and with
the next one ids are short again.

A member is told from where its client is known to be, and never from where this dispatcher was: what was
sent to a client that is gone may not have reached it. So when a member breaks off that has said something,
because its server is gone or it has moved, the connection ends, and the client comes back. One that has not
is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dispatcher.store.directory import Subscription
from edn.errors import EdnError, InvalidInput
from edn.http.control_client import CallFailed
from edn.model import namespace

#: characters of an id
LONGEST = 4096
#: seconds between two looks at which members there are, and of silence before an empty line
LOOK_SECONDS = 1.0
SILENCE_SECONDS = 15.0
#: lines that wait for the client
WAITING = 64

_PART = re.compile(r"([0-9a-f]{1,14}):([0-9a-f]{12}\.[0-9]{1,18}\.([0-9]{1,9}))\Z")
_END = "end"

#: opens the stream of one member, from an id on
Open = Callable[[Subscription, str | None], AbstractAsyncContextManager[AsyncIterator[bytes]]]


class _Line(msgspec.Struct, omit_defaults=True):
    data: msgspec.Raw
    event: str = ""
    id: str = ""


_decoder = msgspec.json.Decoder(_Line)


async def end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks once and wait until they have cleaned up, although this task is cancelled meanwhile.

    A response that is cancelled is cancelled again at every step. `gather` would pass all of that on to tasks
    that are closing connections, which then stay open for good.
    """
    waiting = set(tasks)
    for task in waiting:
        task.cancel()
    while waiting:
        with contextlib.suppress(asyncio.CancelledError):
            _, waiting = await asyncio.wait(waiting)
        waiting = {task for task in waiting if not task.done()}


def read_positions(last: str | None) -> dict[str, str]:
    """By the topic's number, where a client is; raises `InvalidInput`."""
    positions = {}
    for part in last.split(",") if last else ():
        found = _PART.match(part)
        if found is None:
            raise InvalidInput("Last-Event-ID: not an id that this stream gave")
        positions[found[1]] = found[2]
    return positions


def write_positions(positions: dict[str, str]) -> str:
    return ",".join(f"{topic}:{id}" for topic, id in positions.items())


@dataclass(slots=True)
class _State:
    """One connection."""

    #: where the client is, as its next id says
    positions: dict[str, str]
    #: members that are being read
    readers: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    #: members that have said something
    spoken: set[str] = field(default_factory=set)
    #: one of those broke off, or an id has become too long: the client must come back
    broken: bool = False


class MergedStream:
    """Event loop only."""

    def __init__(self, open: Open, members: Callable[[], Awaitable[list[Subscription] | None]]) -> None:
        """`members` tells which there are at this moment; None: the subscription has ended."""
        self._open = open
        self._members = members
        self._queue: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(WAITING)

    async def lines(self, positions: dict[str, str]) -> AsyncGenerator[bytes, None]:
        """As a member's stream has them, without end as long as the subscription lives."""
        state = _State(dict(positions))
        silent, looked = 0.0, float("-inf")
        clock = asyncio.get_running_loop().time
        try:
            while not state.broken:
                if clock() - looked >= LOOK_SECONDS:
                    looked = clock()
                    members = await self._members()
                    if members is None:
                        yield msgspec.json.encode(
                            {"event": _END, "data": {"reason": "the subscription has ended"}}
                        )
                        return
                    self._read(state, members)
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        topic, line = await self._queue.get()
                except TimeoutError:
                    silent += LOOK_SECONDS
                    if silent >= SILENCE_SECONDS:
                        silent = 0.0
                        yield b""
                    continue
                told = self._told(state, topic, line)
                if told is not None:
                    silent = 0.0
                    yield told
        finally:
            await end(state.readers.values())

    def _read(self, state: _State, members: list[Subscription]) -> None:
        """Read those that are not being read; what is not told yet of those that are gone is still told."""
        for member in members:
            topic = member.id.partition(namespace.MEMBER)[2]
            if topic not in state.readers and topic not in state.spoken:
                work = self._follow(state, topic, member)
                state.readers[topic] = asyncio.create_task(work, name=f"stream of {member.id}")

    async def _follow(self, state: _State, topic: str, member: Subscription) -> None:
        last = state.positions.get(topic)
        ended = False
        try:
            async with self._open(member, last) as lines:
                if last is not None and last.endswith(".0"):
                    # What was seen is gone from its server: nobody need say so again.
                    state.positions.pop(topic, None)
                async for line in lines:
                    if line:
                        ended = _decoder.decode(line).event == _END
                        await self._queue.put((topic, line))
        except (EdnError, CallFailed):
            pass
        finally:
            del state.readers[topic]
            state.broken |= topic in state.spoken and not ended

    def _told(self, state: _State, topic: str, line: bytes) -> bytes | None:
        """A member's line as the client gets it; None if it gets none."""
        found = _decoder.decode(line)
        if found.event == _END:  # of a topic; the subscription goes on
            state.spoken.discard(topic)
            state.positions.pop(topic, None)
            return None
        if not found.id:
            return line
        state.spoken.add(topic)
        # The latest last, so that the order of an id says who spoke when.
        state.positions.pop(topic, None)
        state.positions[topic] = found.id
        id = write_positions(state.positions)
        state.broken |= len(id) > LONGEST
        return msgspec.json.encode(_Line(found.data, found.event, id))
