"""What must be on a server before it counts: placed, stored there, routed to it; or forgotten again.

A filter's rectangles are computed here, not taken from the server's answer: so an answer that got lost can
never leave the table too narrow. What was stored for nothing, because something failed afterwards, is ended
in the log; until then it costs only width.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dispatcher import activating, keyrings
from dispatcher.activating import Prepared, Stored
from dispatcher.log import Transaction
from dispatcher.network import Network
from dispatcher.placing import Candidate
from dispatcher.replaying import Replay
from edn import defects, wire
from edn.errors import EdnError

#: subscriptions of one message to a server: a topic may come to have more at once
STORED_AT_ONCE = 1000


class Storing:
    """Event loop only."""

    def __init__(self, network: Network, on_replay: Callable[[Replay], None]) -> None:
        """`on_replay` hears of what a new subscription is to be told of the time before it."""
        self._network = network
        self._log = network.log
        self._placing = network.placing
        self._on_replay = on_replay

    def place(self, items: Sequence[Prepared], hosts: Mapping[str, str] | None = None) -> list[Prepared]:
        """The same, each with a server, where it counts from now on; `hosts`: what others suggest, by id."""
        if not items:
            return []
        suggested = hosts or {}
        candidates = [
            Candidate(
                item.topic.uid,
                item.bound.rects(),
                item.subscription.location,
                suggested.get(item.subscription.id),
                self._network.bindings.hosts_of(item.topic.path),
            )
            for item in items
        ]
        chosen = self._placing.place(candidates)
        return [
            replace(item, subscription=replace(item.subscription, server=server))
            for item, server in zip(items, chosen, strict=True)
        ]

    async def store_and(
        self,
        placed: Sequence[Prepared],
        append: Callable[[Transaction, Stored], tuple[Mapping[str, int], list[Replay]]],
        changed: Sequence[Prepared] = (),
        *,
        asking: bool = False,
    ) -> None:
        """Have servers store what was placed, and what is changed where it is; then append what makes it
        count, which tells what has ended on which servers, and which replays begin. `asking` as in `store`.
        """
        together = [*placed, *changed]
        try:
            stored = await self.store(together, asking=asking)
            ended, replays = await self._log.submit(lambda transaction: append(transaction, stored))
        except BaseException as error:
            self.ended(Counter(item.subscription.server for item in placed))
            if isinstance(error, EdnError):
                await self.discard(together)
            raise
        self.ended(ended)
        for replay in replays:
            self._on_replay(replay)

    def ended(self, by_server: Mapping[str, int]) -> None:
        for server, count in by_server.items():
            self._placing.ended(server, count)

    async def store(
        self, prepared: Sequence[Prepared], *, asking: bool = False
    ) -> dict[tuple[str, int], wire.Stored]:
        """Every server stores its own, durably; then the routing table covers them all.

        What each answered, by server and topic. `asking`: sinks that must consent are asked before; else
        they are when there is something to post.
        """
        groups: dict[tuple[str, int], list[Prepared]] = {}
        for item in prepared:
            groups.setdefault((item.subscription.server, item.topic.uid), []).append(item)
        # All answers are awaited before the first failure is raised: what is discarded then was stored.
        outcomes = await asyncio.gather(
            *(self._store_on(server, items, asking) for (server, _), items in groups.items()),
            return_exceptions=True,
        )
        stored = {}
        for place, outcome in zip(groups, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            stored[place] = outcome
        return stored

    async def _store_on(self, server: str, items: list[Prepared], asking: bool) -> wire.Stored:
        """What it answered last: nothing that was stored before is missing from what it tells afterwards."""
        topic = max((item.topic for item in items), key=lambda topic: topic.revision)
        for first in range(0, len(items), STORED_AT_ONCE):
            some = items[first : first + STORED_AT_ONCE]
            request = wire.Store(
                self._log.id,
                self._log.incarnation,
                topic.info(),
                [one.item() for one in some],
                keyrings.read(self._log.reader, {one.subscription.ring for one in some}),
                asking,
            )
            stored = await self._network.calls.store(server, request)
            moving = any(item.arriving for item in some)
            if not defects.planted(
                "move-before-widening" if moving else "skip-the-widening"
            ):  # for tests only
                rects = [item.bound.rects() for item in some]
                activating.widen(self._network, server, topic.uid, rects, stored)
        return stored

    async def discard(self, prepared: Sequence[Prepared]) -> None:
        """Tell the servers to forget what was stored for nothing; it costs only width until they do."""

        def forget(transaction: Transaction) -> None:
            by_server: dict[str, list[tuple[str, int]]] = {}
            for item in prepared:
                one = item.subscription
                by_server.setdefault(one.server, []).append((one.id, one.version))
            for server, versions in by_server.items():
                transaction.append_control(server, "deactivate", versions=versions)

        with contextlib.suppress(EdnError):
            await self._log.submit(forget)
