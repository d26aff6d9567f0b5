"""Merges the streams of a subtree subscription's members into one stream.

The id of a merged notification is the position in every member that has sent something since the client
connected: the topic's number and the member's own last id.

    1c9e04:3f2a91c04b1d.17.0,7b20:3f2a91c04b1d.18.2

A client that reconnects with the id continues each member there. Other members continue with the first
notification that still exists: earlier ones were acknowledged when the client connected. So the length of an
id grows with the active topics only; beyond `LONGEST` the connection ends, and ids are short after the next.

A member is read from the position that the client has confirmed, never from the position of this dispatcher:
notifications sent to a lost connection may not have arrived. So when a member that has sent something breaks
off, because its server is offline or it has migrated, the connection ends and the client reconnects. A member
that has sent nothing is reopened.
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

#: maximum length of an id
LONGEST = 4096
#: seconds between checks for new members, and of silence before a keep-alive
LOOK_SECONDS = 1.0
SILENCE_SECONDS = 15.0
#: capacity of the queue to the client, in lines
WAITING = 64

_PART = re.compile(r"([0-9a-f]{1,14}):([0-9a-f]{12}\.[0-9]{1,18}\.([0-9]{1,9}))\Z")
_END = "end"

#: opens the stream of one member after an id
Open = Callable[[Subscription, str | None], AbstractAsyncContextManager[AsyncIterator[bytes]]]


class Line(msgspec.Struct, omit_defaults=True):
    data: msgspec.Raw
    event: str = ""
    id: str = ""


decoder = msgspec.json.Decoder(Line)


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancels tasks once and waits until they have cleaned up, even if this task is cancelled meanwhile.

    Starlette cancels a response again at every step. `gather` would pass each cancellation on to tasks that
    are closing connections, which would then stay open.
    """
    waiting = set(tasks)
    for task in waiting:
        task.cancel()
    while waiting:
        with contextlib.suppress(asyncio.CancelledError):
            _, waiting = await asyncio.wait(waiting)
        waiting = {task for task in waiting if not task.done()}


def read_positions(last: str | None) -> dict[str, str]:
    """Parses an id: topic number → last id of the member; raises `InvalidInput`."""
    positions = {}
    for part in last.split(",") if last else ():
        found = _PART.match(part)
        if found is None:
            raise InvalidInput("Last-Event-ID must be an id of this stream")
        positions[found[1]] = found[2]
    return positions


def write_positions(positions: dict[str, str]) -> str:
    return ",".join(f"{topic}:{id}" for topic, id in positions.items())


@dataclass(slots=True)
class _State:
    """State of one connection; topics are topic numbers."""

    #: topic → position of the client, as in its next id
    positions: dict[str, str]
    #: topic → reader of the member
    readers: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    #: topics of members that have sent something
    active: set[str] = field(default_factory=set)
    #: an active member broke off, or the id is too long: the client must reconnect
    is_broken: bool = False


class MergedStream:
    """Reads the members of a subtree subscription for one client; event loop only."""

    def __init__(self, open: Open, members: Callable[[], Awaitable[list[Subscription] | None]]) -> None:
        """`members` returns the current members, or None if the subscription has ended."""
        self._open = open
        self._members = members
        self._queue: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(WAITING)

    async def lines(self, positions: dict[str, str]) -> AsyncGenerator[bytes, None]:
        """Yields lines in the format of a member's stream, until the subscription ends."""
        state = _State(dict(positions))
        silent, looked = 0.0, float("-inf")
        clock = asyncio.get_running_loop().time
        try:
            while not state.is_broken:
                if clock() - looked >= LOOK_SECONDS:
                    looked = clock()
                    members = await self._members()
                    if members is None:
                        yield msgspec.json.encode(
                            {"event": _END, "data": {"reason": "the subscription has ended"}}
                        )
                        return
                    self._start_readers(state, members)
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        topic, line = await self._queue.get()
                except TimeoutError:
                    silent += LOOK_SECONDS
                    if silent >= SILENCE_SECONDS:
                        silent = 0.0
                        yield b""
                    continue
                merged = self._merge(state, topic, line)
                if merged is not None:
                    silent = 0.0
                    yield merged
        finally:
            await cancel(state.readers.values())

    def _start_readers(self, state: _State, members: list[Subscription]) -> None:
        """Starts a reader for each new member. Queued lines of removed members are still sent."""
        for member in members:
            topic = member.id.partition(namespace.MEMBER)[2]
            if topic not in state.readers and topic not in state.active:
                work = self._read(state, topic, member)
                state.readers[topic] = asyncio.create_task(work, name=f"stream of {member.id}")

    async def _read(self, state: _State, topic: str, member: Subscription) -> None:
        last = state.positions.get(topic)
        ended = False
        try:
            async with self._open(member, last) as lines:
                if last is not None and last.endswith(".0"):
                    # The server has deleted the acknowledged notifications, so the id need not repeat this.
                    state.positions.pop(topic, None)
                async for line in lines:
                    if line:
                        ended = decoder.decode(line).event == _END
                        await self._queue.put((topic, line))
        except (EdnError, CallFailed):
            pass
        finally:
            del state.readers[topic]
            state.is_broken |= topic in state.active and not ended

    def _merge(self, state: _State, topic: str, line: bytes) -> bytes | None:
        """Converts a member's line to a line of the merged stream; None if the client gets none."""
        found = decoder.decode(line)
        if found.event == _END:  # the topic has ended, the subscription has not
            state.active.discard(topic)
            state.positions.pop(topic, None)
            return None
        if not found.id:
            return line
        state.active.add(topic)
        # The latest topic last: an id lists topics in the order of their last notifications.
        state.positions.pop(topic, None)
        state.positions[topic] = found.id
        id = write_positions(state.positions)
        state.is_broken |= len(id) > LONGEST
        return msgspec.json.encode(Line(found.data, found.event, id))
