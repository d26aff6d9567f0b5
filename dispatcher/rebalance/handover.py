"""Completes a migration: once the old server has drained its outbox, the new server starts delivering.

For every move that is not settled the old server is asked, again and again, whether all logs have ended the
subscription there, what it kept for it if it is paused, and whether anything is left to be delivered. What is
kept goes to the new server first, and with several dispatchers also whom the old one told of events whose ids
their publishers chose: another log may bring those again. When nothing is left, the new server is told, and
the move forgotten. Each step may be repeated, so a crash of anybody costs only that.

Notifications to an address that does not answer are retried and given up by the old server as ever; nobody
else waits for them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from dispatcher.servers.backup_gate import BackupGate
from dispatcher.servers.client import ServerClient
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store import repartitions
from dispatcher.store.event_log import Log
from dispatcher.store.repartitions import Unsettled
from edn import protocol
from edn.errors import EdnError

logger = structlog.get_logger()

#: moves that one question is about
TOGETHER = 500
#: seconds between two questions to a server, at first and when nothing has come of them for long
SOON, LATE = 0.05, 3.0
#: and at least so many times what asking took: on a busy machine more is asked at once, not more often
RESTS = 3.0

_departed = protocol.Decoder(protocol.Departed)
_kept = protocol.Decoder(protocol.Kept)
_told = protocol.Decoder(protocol.Told)
_taken = protocol.Decoder(protocol.Taken)


@dataclass(frozen=True, slots=True)
class _Delivered:
    """Moves away from one server that wait for nothing there any more."""

    source: str
    moves: list[Unsettled]
    #: it has ended some of what it was asked about
    ended: bool

    def by_destination(self) -> dict[str, list[Unsettled]]:
        found: dict[str, list[Unsettled]] = defaultdict(list)
        for move in self.moves:
            found[move.destination].append(move)
        return found


class Handover:
    """Settles what this dispatcher has moved, also in an earlier life. Event loop only."""

    def __init__(
        self, log: Log, members: ServerRegistry, calls: ServerClient, backup_gate: BackupGate
    ) -> None:
        self._log = log
        self._members = members
        self._tell = calls.send
        self._backup_gate = backup_gate
        self._woken = asyncio.Event()
        self._pauses: dict[str, float] = {}

    def wake(self) -> None:
        """There is something to settle."""
        self._pauses.clear()
        self._woken.set()

    async def unsettled(self, source: str | None = None) -> int:
        """How many moves are not settled; those away from a server."""
        return await self._log.reading(lambda connection: repartitions.count_moves(connection, source))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due: dict[str, float] = {}
        while True:
            # Cleared before the read: a move during it is not missed.
            self._woken.clear()
            sources = await self._log.reading(repartitions.sources)
            began = loop.time()
            for source in sources:
                due.setdefault(source, began)
                if not self._pauses.get(source):
                    due[source] = began
            ready = [source for source in sources if due[source] <= began]
            try:
                settled = await self._round(ready) if ready else set()
            except (EdnError, msgspec.MsgspecError) as error:
                # A full disk, say: what was told is told again, and nothing comes of that.
                logger.warning("what was settled could not be noted", reason=str(error))
                settled = set()
            ended = loop.time()
            soon = max(SOON, RESTS * (ended - began))
            for source in ready:
                pause = soon if source in settled else min(LATE, max(soon, 2 * self._pauses.get(source, 0.0)))
                self._pauses[source] = pause
                due[source] = ended + pause
            left = min((due[source] for source in sources), default=None)
            try:
                async with asyncio.timeout(None if left is None else max(SOON, left - ended)):
                    await self._woken.wait()
                    await asyncio.sleep(soon)  # what comes together is asked together
            except TimeoutError:
                pass

    async def _round(self, sources: Sequence[str]) -> set[str]:
        """One look at all that has left these servers; those of which moves were settled."""
        async with self._backup_gate.step():
            delivered = await asyncio.gather(*(self._delivered(source) for source in sources))
            settled = await self._release(delivered)
            await self._forget([move for one in settled for move in one.moves])
            return {one.source for one in settled}

    async def _delivered(self, source: str) -> _Delivered:
        """Subscriptions that have left a server and have nothing more to deliver there."""
        moves = await self._log.reading(lambda connection: repartitions.moves_from(connection, source))
        found, ended = [], False
        for start in range(0, len(moves), TOGETHER):
            part = {move.subscription: move for move in moves[start : start + TOGETHER]}
            try:
                departed = await self._departed(source, part)
            except (EdnError, msgspec.MsgspecError) as error:
                logger.warning("what was moved is not settled yet", source=source, reason=str(error))
                break
            ended = ended or bool(departed.ended)
            found += [part[name] for name in departed.delivered]
        return _Delivered(source, found, ended)

    async def _ask(self, source: str, moves: Mapping[str, Unsettled]) -> protocol.Departed:
        """Ask a server how far the hand-over of these subscriptions is."""
        member = self._members.get(source)
        if member is None or member.leaving == "lost":
            return protocol.Departed([], [], list(moves))  # nobody is left to wait for
        versions = [(move.subscription, move.version) for move in moves.values()]
        answer = await self._tell(source, "/internal/departures", protocol.Departures(versions))
        return _departed.decode(answer)

    async def _departed(self, source: str, moves: Mapping[str, Unsettled]) -> protocol.Departed:
        """How far these are, once what was kept for some of them is handed over."""
        departed = await self._ask(source, moves)
        kept_back: set[str] = set()
        for name in departed.keeping:
            try:
                await self._hand_over(source, moves[name])
            except EdnError as error:
                kept_back.add(name)  # its new server is away; the others need not wait for that
                logger.warning("what was kept is not handed over yet", subscription=name, reason=str(error))
        delivered = [name for name in departed.delivered if name not in kept_back]
        return msgspec.structs.replace(departed, delivered=delivered)

    async def _release(self, delivered: Sequence[_Delivered]) -> list[_Delivered]:
        """Release the moves on their new servers; return the ones that were released."""
        by_destination: dict[str, list[_Delivered]] = defaultdict(list)
        for one in delivered:
            for destination, moves in one.by_destination().items():
                by_destination[destination].append(_Delivered(one.source, moves, one.ended))
        arrived = await asyncio.gather(
            *(self._arrive(destination, those) for destination, those in by_destination.items())
        )
        return [one for those in arrived for one in those]

    async def _arrive(self, destination: str, those: Sequence[_Delivered]) -> Sequence[_Delivered]:
        """Tell a server, in one message, what it may send now; what it was told."""
        try:
            for one in those:
                if self._log.noting and one.ended:
                    await self._tell_told(one.source, destination, [move.subscription for move in one.moves])
            arrived = [(move.subscription, move.version) for one in those for move in one.moves]
            await self._tell(destination, "/internal/arrivals", protocol.Arrivals(arrived))
        except EdnError as error:
            logger.warning("a server does not know yet", destination=destination, reason=str(error))
            return ()
        return those

    async def _hand_over(self, source: str, move: Unsettled) -> None:
        """Copy the buffered notifications of a paused subscription, then have the old server forget them."""
        await self._copy_kept(source, move)
        forget = protocol.Departures([], forget=[move.subscription])
        await self._tell(source, "/internal/departures", forget)
        await self._log.submit(lambda transaction: repartitions.mark_handed_over(transaction, move))

    async def _copy_kept(self, source: str, move: Unsettled) -> None:
        """Copy the buffered notifications of a subscription to its new server, page by page."""
        position = 0
        while True:
            question = protocol.KeptAfter(move.subscription, position)
            page = _kept.decode(await self._tell(source, "/internal/departures/kept", question))
            page = msgspec.structs.replace(page, version=move.version)
            taken = _taken.decode(await self._tell(move.destination, "/internal/arrivals/kept", page))
            if taken.unknown or (page.final and taken.position >= page.upto):
                return
            position = taken.position

    async def _tell_told(self, source: str, destination: str, names: list[str]) -> None:
        following: tuple[int, str] | None = (-1, "")
        while following is not None:
            question = protocol.ToldAfter(names, following)
            page = _told.decode(await self._tell(source, "/internal/departures/told", question))
            if page.events:
                await self._tell(destination, "/internal/arrivals/told", page)
            following = page.following

    async def _forget(self, moves: Sequence[Unsettled]) -> None:
        if moves:
            await self._log.submit(lambda transaction: repartitions.delete_moves(transaction, moves))
