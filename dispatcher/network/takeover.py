"""Takes over the logs of dispatchers that are gone: forwards what servers lack, then retires the log.

Theory of operation
-------------------
A dispatcher that dies or stops leaves a log that servers may not have read to its end. When its lease has not
changed for its length and a while more, by the elapsed time of this process, and neither the dispatcher nor a
standby of its name has come back, another dispatcher takes the lease. The
fencing token refuses the former owner from then on (`edn.runtime.postgres.lease`).

An adopted log accepts no events. Until it is retired it gets the control records of all changes, like every
open log, and its replays go on. It is retired when every server has read all of it, no replay is unfinished
and none of its events is retained for later subscriptions. The transaction that retires it compares the head
of the log under its lock, and appends a *retire* record for every server to the own log.

The dispatcher that returns finds its log taken, and opens another one. If the log was given up again, because
the adopting dispatcher stopped, it continues it.

No clock is compared, and an outage of the database does not count: nobody could renew a lease then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from dispatcher.network.membership import Membership
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.backup_gate import BackupGate
from dispatcher.servers.client import ServerClient
from dispatcher.servers.forwarder import Forwarder
from dispatcher.servers.log_tail import Tail
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.registry import Server, ServerRegistry
from dispatcher.store import servers
from dispatcher.store.changes import Gap
from dispatcher.store.event_log import Log, LogRow
from dispatcher.store.interface import Connection
from dispatcher.store.records import Record
from dispatcher.subscriptions.replay import Replayer
from dispatcher.subscriptions.topics import Topics
from edn.errors import Unavailable
from edn.http.exchange import HttpAnswer
from edn.runtime.ownership import owned
from edn.runtime.tasks import Tasks

logger = structlog.get_logger()

#: seconds after the length of a lease for which its owner, or a standby of its name, may come back
GRACE_SECONDS = 1.5
#: seconds between two truncations of an adopted log
UPKEEP_SECONDS = 5.0
#: bytes of control records in memory
_TAIL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of this dispatcher that an adopted log uses, too."""

    log: Log
    registry: ServerRegistry
    client: ServerClient
    table: RoutingTable
    topics: Topics
    pipeline: Pipeline
    backup_gate: BackupGate


@owned("loop")
class AdoptedLog:
    """A log of another dispatcher that this one drains."""

    def __init__(self, log: Log, parts: Parts) -> None:
        self.log = log
        self._parts = parts
        self._tasks = Tasks()
        self._tail = Tail(head=log.head, limit_bytes=_TAIL_BYTES)
        self._forwarders: dict[str, Forwarder] = {}
        self._next_upkeep = 0.0
        self._replayer = Replayer(
            log,
            parts.topics,
            parts.registry,
            parts.client,
            parts.pipeline,
            parts.backup_gate,
            self._tasks,
            self._position,
        )
        log.on_commit = self._forward
        log.on_gap = self._learn

    def start(self) -> None:
        self.log.start()
        self._replayer.start()

    async def stop(self) -> None:
        await self._tasks.stop()
        await self.log.stop()
        self._replayer.stop()

    def _position(self, server: str) -> int | None:
        forwarder = self._forwarders.get(server)
        return None if forwarder is None else forwarder.position

    def _learn(self, gap: Gap) -> None:
        # The own log has the same changes, and applies them to memory.
        for replay in gap.replays:
            self._replayer.begin(replay)

    def _forward(self, records: list[Record]) -> None:
        self._tail.extend(records)
        for forwarder in self._forwarders.values():
            forwarder.wake()

    async def step(self) -> bool:
        """Forward to servers that have come; return whether all have read the log, and it is retired."""
        readers = [one for one in self._parts.registry if one.leaving != "lost"]
        for server in readers:
            if server.id not in self._forwarders and self._parts.registry.state(server) != "away":
                await self._begin(server)
        cursors = {id: forwarder.acked for id, forwarder in self._forwarders.items()}
        read = min((cursors.get(one.id, 0) for one in readers), default=self.log.head)
        if read >= self.log.head and await self._retire([one.id for one in readers]):
            return True
        if time.monotonic() < self._next_upkeep:
            return False
        self._next_upkeep = time.monotonic() + UPKEEP_SECONDS
        await self.log.submit(
            lambda transaction: servers.put_cursors(transaction, list(cursors.items())), changes=False
        )
        await self.log.truncate(read, 0)
        return False

    async def _begin(self, server: Server) -> None:
        start = await self.log.reading(_start, server.id)
        id, parts = server.id, self._parts

        async def send(frame: bytes) -> HttpAnswer:
            # Looked up each time: a server that restarts may have another address.
            found = parts.registry.get(id)
            return await parts.client.send_frame(server.url if found is None else found.url, frame)

        self._forwarders[id] = Forwarder(
            id,
            log=self.log,
            tail=self._tail,
            table=parts.table,
            send=send,
            acked=max(start, self.log.floor),
            on_frame=parts.pipeline.counters.count_frame,
            on_progress=lambda: None,
            on_ack=lambda _: None,
        )
        self._tasks.spawn(self._forwarders[id].run(), f"forward {self.log.id} to {id}")

    async def _retire(self, readers: list[str]) -> bool:
        if await self.log.is_needed():
            return False
        if not await self._parts.log.retire(self.log.id, self.log.head, readers):
            return False
        logger.info("log_retired", log=self.log.id, head=self.log.head)
        await self.log.forget()
        return True


def _start(connection: Connection, server: str) -> int:
    """Return the offset after which a server's stream starts, at the latest; the server knows it exactly."""
    cursor, first = servers.cursor(connection, server), servers.first_record(connection, server)
    return max(cursor, 0 if first is None else first - 1)


@owned("loop")
@dataclass(eq=False)
class Takeover:
    _parts: Parts
    _membership: Membership
    _clock: Callable[[], float] = time.monotonic
    #: by id
    adopted: dict[str, AdoptedLog] = field(default_factory=dict)
    #: state of the lease of each log, and when it was first seen
    _seen: dict[str, tuple[tuple[int, int], float]] = field(default_factory=dict)

    async def step(self) -> None:
        """Take over logs without an owner, and go on with those that are taken; called every second."""
        now = self._clock()
        if self._parts.log.unavailable is not None:
            self._seen = {}
            return
        others = [row for row in self._membership.logs if row.log not in {self._parts.log.id, *self.adopted}]
        before, self._seen = self._seen, {}
        for row in others:
            state = row.fence, row.commits
            known, since = before.get(row.log, (state, now))
            self._seen[row.log] = state, since if known == state else now
            if known == state and now - since > row.seconds + GRACE_SECONDS:
                await self._adopt(row)
        for log, adopted in list(self.adopted.items()):
            try:
                if await adopted.step():
                    await self._drop(log)
            except Unavailable as error:
                logger.warning("adopted_log_waits", log=log, reason=str(error))
                if adopted.log.is_lost:
                    await self._drop(log)

    async def _adopt(self, row: LogRow) -> None:
        log, taken = row.log, await self._parts.log.adopt(row)
        if taken is None:
            return  # another dispatcher was faster
        logger.warning("log_taken_over", log=log, head=taken.head, incarnation=taken.incarnation)
        try:
            # The routing table must know all subscriptions that the log has activated.
            await self._parts.log.refresh()
        except Unavailable:
            await asyncio.to_thread(taken.close)  # the next step, or another dispatcher, takes it again
            raise
        adopted = self.adopted[log] = AdoptedLog(taken, self._parts)
        adopted.start()

    async def _drop(self, log: str) -> None:
        await self.adopted.pop(log).stop()

    async def stop(self) -> None:
        await asyncio.gather(*(self._drop(log) for log in list(self.adopted)))
