"""Completes a migration: once the old server has drained its outbox, the new server starts delivering.

The dispatcher polls the old server of every unfinished migration: whether all logs have ended the
subscription there, whether notifications are buffered for a pause, and whether any are left to deliver. It
first copies buffered notifications to the new server. When the old server has nothing left, the dispatcher
releases the new server and deletes the migration. All steps are idempotent, so a crash only repeats some. Of
several dispatchers the leader does this for all.

The old server retries and dead-letters notifications to failing addresses as usual.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from dispatcher.servers.backup_gate import BackupGate
from dispatcher.servers.client import ServerClient
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store import repartitions
from dispatcher.store.event_log import Log
from dispatcher.store.repartitions import Migration
from edn import protocol
from edn.errors import EdnError

logger = structlog.get_logger()

BATCH = 500
#: shortest and longest delay between two polls of a server, seconds
MIN_DELAY, MAX_DELAY = 0.05, 3.0
#: shortest delay as a multiple of the duration of a poll, so that polls are larger, not denser, under load
RESTS = 3.0
#: delay after an error of the store
RETRY_SECONDS = 0.5

_departed = protocol.Decoder(protocol.Departed)
_kept = protocol.Decoder(protocol.BufferedPage)
_progress = protocol.Decoder(protocol.ProgressPage)
_taken = protocol.Decoder(protocol.Accepted)


@dataclass(frozen=True, slots=True)
class _Delivered:
    """Migrations whose old server has nothing left to deliver."""

    source: str
    moves: list[Migration]

    def by_destination(self) -> dict[str, list[Migration]]:
        found: dict[str, list[Migration]] = defaultdict(list)
        for move in self.moves:
            found[move.destination].append(move)
        return found


class Handover:
    """Completes the migrations of the network, including those of an earlier process. Event loop only."""

    def __init__(
        self,
        log: Log,
        members: ServerRegistry,
        calls: ServerClient,
        backup_gate: BackupGate,
        leads: Callable[[], bool],
    ) -> None:
        self._log = log
        self._members = members
        self._tell = calls.send
        self._backup_gate = backup_gate
        self._leads = leads
        self._woken = asyncio.Event()
        self._delays: dict[str, float] = {}

    def wake(self) -> None:
        """Poll now, after subscriptions have moved."""
        self._delays.clear()
        self._woken.set()

    async def count_unfinished(self, source: str | None = None) -> int:
        return await self._log.reading(repartitions.count_moves, source)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due: dict[str, float] = {}
        while True:
            # Cleared before the read, so that a move during it is not missed.
            self._woken.clear()
            if not self._leads():
                await asyncio.sleep(MAX_DELAY)
                continue
            try:
                sources = await self._log.reading(repartitions.sources)
            except EdnError as error:
                logger.warning("handover_waits", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            began = loop.time()
            for source in sources:
                due.setdefault(source, began)
                if not self._delays.get(source):
                    due[source] = began
            ready = [source for source in sources if due[source] <= began]
            try:
                finished = await self._poll(ready) if ready else set()
            except (EdnError, msgspec.MsgspecError) as error:
                # For example on a full disk; the steps are repeated.
                logger.warning("handover_not_recorded", reason=str(error))
                finished = set()
            ended = loop.time()
            least = max(MIN_DELAY, RESTS * (ended - began))
            for source in ready:
                doubled = max(least, 2 * self._delays.get(source, 0.0))
                self._delays[source] = least if source in finished else min(MAX_DELAY, doubled)
                due[source] = ended + self._delays[source]
            following = min((due[source] for source in sources), default=None)
            # Without migrations, too: another one may lead, migrate and die before this one leads again.
            longest = MAX_DELAY if self._log.shared else None
            try:
                async with asyncio.timeout(
                    longest if following is None else max(MIN_DELAY, following - ended)
                ):
                    await self._woken.wait()
                    await asyncio.sleep(least)  # to poll for several moves at once
            except TimeoutError:
                pass

    async def _poll(self, sources: Sequence[str]) -> set[str]:
        """Poll old servers and complete the migrations that are ready; return the servers of these."""
        async with self._backup_gate.step():
            delivered = await asyncio.gather(*(self._find_delivered(source) for source in sources))
            released = await self._release(delivered)
            await self._forget([move for one in released for move in one.moves])
            return {one.source for one in released}

    async def _find_delivered(self, source: str) -> _Delivered:
        """Return the migrations from a server that has nothing left to deliver for them."""
        moves = await self._log.reading(repartitions.moves_from, source)
        found: list[Migration] = []
        for start in range(0, len(moves), BATCH):
            part = {move.subscription: move for move in moves[start : start + BATCH]}
            try:
                departed = await self._departed(source, part)
            except (EdnError, msgspec.MsgspecError) as error:
                logger.warning("handover_poll_failed", source=source, reason=str(error))
                break
            found += [part[name] for name in departed.delivered]
        return _Delivered(source, found)

    async def _ask(self, source: str, moves: Mapping[str, Migration]) -> protocol.Departed:
        member = self._members.get(source)
        if member is None or member.leaving == "lost":
            return protocol.Departed([], [], list(moves))  # its notifications are lost
        versions = [(move.subscription, move.version) for move in moves.values()]
        answer = await self._tell(source, "/internal/departures", protocol.Departures(versions))
        return _departed.decode(answer)

    async def _departed(self, source: str, moves: Mapping[str, Migration]) -> protocol.Departed:
        """Hand over buffered notifications; return the state of the departed subscriptions."""
        departed = await self._ask(source, moves)
        failed: set[str] = set()
        for name in departed.keeping:
            try:
                await self._hand_over(source, moves[name], has_monitor=name in departed.monitored)
            except EdnError as error:
                failed.add(name)  # its new server is offline; the others need not wait
                logger.warning("handover_failed", subscription=name, reason=str(error))
        delivered = [name for name in departed.delivered if name not in failed]
        return msgspec.structs.replace(departed, delivered=delivered)

    async def _release(self, delivered: Sequence[_Delivered]) -> list[_Delivered]:
        """Release buffered notifications on the new servers; return the migrations that were released."""
        by_destination: dict[str, list[_Delivered]] = defaultdict(list)
        for one in delivered:
            for destination, moves in one.by_destination().items():
                by_destination[destination].append(_Delivered(one.source, moves))
        released = await asyncio.gather(
            *(self._release_on(destination, parts) for destination, parts in by_destination.items())
        )
        return [one for parts in released for one in parts]

    async def _release_on(self, destination: str, parts: Sequence[_Delivered]) -> Sequence[_Delivered]:
        """Release migrations on one server in one request; return them, or nothing if it failed."""
        try:
            arrived = [(move.subscription, move.version) for one in parts for move in one.moves]
            await self._tell(destination, "/internal/arrivals", protocol.Arrivals(arrived))
        except EdnError as error:
            logger.warning("handover_release_failed", destination=destination, reason=str(error))
            return ()
        return parts

    async def _hand_over(self, source: str, move: Migration, *, has_monitor: bool) -> None:
        """Copy the buffered notifications of a subscription, then delete them on the old server.

        `has_monitor`: it is a sequence, whose half matches follow.
        """
        await self._copy_kept(source, move)
        if has_monitor:
            await self._copy_progress(source, move)
        forget = protocol.Departures([], forget=[move.subscription])
        await self._tell(source, "/internal/departures", forget)
        await self._log.submit(lambda transaction: repartitions.mark_handed_over(transaction, move))

    async def _copy_kept(self, source: str, move: Migration) -> None:
        position = 0
        while True:
            question = protocol.BufferedQuery(move.subscription, position)
            page = _kept.decode(await self._tell(source, "/internal/departures/kept", question))
            page = msgspec.structs.replace(page, version=move.version)
            taken = _taken.decode(await self._tell(move.destination, "/internal/arrivals/kept", page))
            if taken.unknown or (page.final and taken.position >= page.upto):
                return
            position = taken.position

    async def _copy_progress(self, source: str, move: Migration) -> None:
        position = 0
        while True:
            question = protocol.ProgressQuery(move.subscription, move.version, position)
            page = _progress.decode(await self._tell(source, "/internal/departures/progress", question))
            taken = _taken.decode(await self._tell(move.destination, "/internal/arrivals/progress", page))
            if taken.unknown or (page.final and taken.position >= page.upto):
                return
            position = taken.position

    async def _forget(self, moves: Sequence[Migration]) -> None:
        if moves:
            await self._log.submit(lambda transaction: repartitions.delete_moves(transaction, moves))
