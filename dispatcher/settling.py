"""What was moved is settled: the old server has delivered its own, so the new one may send what it found.

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
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import structlog

from dispatcher.log import Transaction
from dispatcher.network import Network
from edn import checkpoints, wire
from edn.errors import EdnError

logger = structlog.get_logger()

#: moves that one question is about
TOGETHER = 500
#: seconds between two questions to a server, at first and when nothing has come of them for long
SOON, LATE = 0.05, 3.0

_departed = msgspec.msgpack.Decoder(wire.Departed)
_kept = msgspec.msgpack.Decoder(wire.Kept)
_told = msgspec.msgpack.Decoder(wire.Told)
_taken = msgspec.msgpack.Decoder(wire.Taken)


@dataclass(frozen=True, slots=True)
class Unsettled:
    subscription: str
    version: int
    destination: str
    #: the old server keeps what it found while the subscription was paused
    keeping: bool


class Settling:
    """Settles what this dispatcher has moved, also in an earlier life. Event loop only."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._log = network.log
        self._woken = asyncio.Event()
        self._pauses: dict[str, float] = {}

    def wake(self) -> None:
        """There is something to settle."""
        self._pauses.clear()
        self._woken.set()

    def unsettled(self, source: str | None = None) -> int:
        """How many moves are not settled; those away from a server."""
        where = "" if source is None else " WHERE source = ?"
        (count,) = self._log.reader.execute(
            f"SELECT count(*) FROM moves{where}", () if source is None else (source,)
        ).fetchone()
        return int(count)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due: dict[str, float] = {}
        while True:
            sources = [row[0] for row in self._log.reader.execute("SELECT DISTINCT source FROM moves")]
            now = loop.time()
            for source in sources:
                due.setdefault(source, now)
                if not self._pauses.get(source):
                    due[source] = now
            ready = [source for source in sources if due[source] <= now]
            progress = await asyncio.gather(*(self._settle_all(source) for source in ready))
            for source, settled in zip(ready, progress, strict=True):
                pause = SOON if settled else min(LATE, 2 * self._pauses.get(source, SOON / 2))
                self._pauses[source] = pause
                due[source] = loop.time() + pause
            self._woken.clear()
            left = min((due[source] for source in sources), default=None)
            try:
                async with asyncio.timeout(None if left is None else max(SOON, left - loop.time())):
                    await self._woken.wait()
                    await asyncio.sleep(SOON)  # what comes together is asked together
            except TimeoutError:
                pass

    async def _settle_all(self, source: str) -> int:
        """One look at all that has left a server; how many moves were settled."""
        rows = self._log.reader.execute(
            "SELECT subscription, version, destination, keeping FROM moves WHERE source = ?", (source,)
        ).fetchall()
        moves = [Unsettled(name, version, where, bool(kept)) for name, version, where, kept in rows]
        settled = 0
        for start in range(0, len(moves), TOGETHER):
            try:
                async with self._network.backing.step():
                    settled += await self._settle(source, moves[start : start + TOGETHER])
            except (EdnError, msgspec.MsgspecError) as error:
                logger.warning("what was moved is not settled yet", source=source, reason=str(error))
                break
        return settled

    async def _settle(self, source: str, moves: Sequence[Unsettled]) -> int:
        by_name = {move.subscription: move for move in moves}
        versions = [(move.subscription, move.version) for move in moves]
        member = self._network.members.get(source)
        if member is None or member.leaving == "lost":
            departed = wire.Departed([], [], list(by_name))  # nobody is left to wait for
        else:
            answer = await self._network.tell(source, "/internal/departures", wire.Departures(versions))
            departed = _departed.decode(answer)
        await checkpoints.reached("asked")
        kept_back: set[str] = set()
        for name in departed.keeping:
            try:
                await self._hand_over(source, by_name[name])
            except EdnError as error:
                kept_back.add(name)  # its new server is away; the others need not wait for that
                logger.warning("what was kept is not handed over yet", subscription=name, reason=str(error))
        delivered = [by_name[name] for name in departed.delivered if name not in kept_back]
        by_destination: dict[str, list[Unsettled]] = defaultdict(list)
        for move in delivered:
            by_destination[move.destination].append(move)
        if delivered:
            await checkpoints.reached("delivered")
        settled: list[Unsettled] = []
        for destination, those in by_destination.items():
            try:
                if self._log.noting and departed.ended:
                    await self._tell_told(source, destination, [move.subscription for move in those])
                arrived = [(move.subscription, move.version) for move in those]
                await self._network.tell(destination, "/internal/arrivals", wire.Arrivals(arrived))
            except EdnError as error:
                logger.warning("a server does not know yet", destination=destination, reason=str(error))
            else:
                settled += those
        if settled:
            await checkpoints.reached("arrived")
        await self._forget(settled)
        return len(settled)

    async def _hand_over(self, source: str, move: Unsettled) -> None:
        """What the old server kept for a paused subscription goes to the new one."""
        position = 0
        while True:
            question = wire.KeptAfter(move.subscription, position)
            page = _kept.decode(await self._network.tell(source, "/internal/departures/kept", question))
            page = msgspec.structs.replace(page, version=move.version)
            taken = _taken.decode(await self._network.tell(move.destination, "/internal/arrivals/kept", page))
            if taken.unknown or (page.final and taken.position >= page.upto):
                break
            position = taken.position
        await checkpoints.reached("handed-over")
        forget = wire.Departures([], forget=[move.subscription])
        await self._network.tell(source, "/internal/departures", forget)

        def operation(transaction: Transaction) -> None:
            transaction.connection.execute(
                "UPDATE moves SET keeping = 0 WHERE subscription = ? AND version = ?",
                (move.subscription, move.version),
            )

        await self._log.submit(operation)

    async def _tell_told(self, source: str, destination: str, names: list[str]) -> None:
        following: tuple[int, str] | None = (-1, "")
        while following is not None:
            question = wire.ToldAfter(names, following)
            page = _told.decode(await self._network.tell(source, "/internal/departures/told", question))
            if page.events:
                await self._network.tell(destination, "/internal/arrivals/told", page)
            following = page.following

    async def _forget(self, moves: Sequence[Unsettled]) -> None:
        if not moves:
            return

        def operation(transaction: Transaction) -> None:
            transaction.connection.executemany(
                "DELETE FROM moves WHERE subscription = ? AND version = ?",
                [(move.subscription, move.version) for move in moves],
            )

        await self._log.submit(operation)
