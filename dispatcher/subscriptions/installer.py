"""Installs subscriptions on servers: choose a server, store the filter, widen the table; undo on failure.

A filter's rectangles are computed here, not taken from the server's answer: so an answer that got lost can
never leave the table too narrow. What was stored for nothing, because something failed afterwards, is ended
in the log; until then it costs only width. A store that reaches a server after that, because its answer took
too long, is refused there (`edn_server.subscriptions.store`); what an earlier life of this dispatcher left
behind ends with its next join.

A subscription to a subtree may have thousands of members. Each server gets them in messages of one topic
each, a few at a time, so that its writer and both event loops serve others in between; after a failure
nothing more is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import structlog

from dispatcher.servers.bindings import Bindings
from dispatcher.servers.client import ServerClient
from dispatcher.servers.placement import Candidate, Placer
from dispatcher.servers.summaries import Summaries
from dispatcher.store import signing_keys
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.store.replays import Replay
from dispatcher.subscriptions.lifecycle import Prepared, Stored
from dispatcher.subscriptions.topics import Topic
from edn import protocol
from edn.errors import EdnError
from edn.runtime.tasks import Tasks

logger = structlog.get_logger()

#: subscriptions of one message to a server: a topic may come to have more at once
STORED_AT_ONCE = 1000
#: messages of one call that a server has at a time: its writer commits those that wait together, in some ten
#: milliseconds
MESSAGES_AT_ONCE = 16
#: seconds for which placing may hold up the event loop
SLICE_SECONDS = 0.005
#: seconds until an end that the log did not take is tried again
AGAIN = 1.0


class SubscriptionInstaller:
    """Event loop only."""

    def __init__(
        self,
        log: Log,
        placing: Placer,
        bindings: Bindings,
        calls: ServerClient,
        summaries: Summaries,
        tasks: Tasks,
        on_replay: Callable[[Replay], None],
    ) -> None:
        """`on_replay` hears of what a new subscription is to be told of the time before it."""
        self._log = log
        self._placing = placing
        self._bindings = bindings
        self._calls = calls
        self._summaries = summaries
        self._tasks = tasks
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
                self._bindings.hosts_of(item.topic.path),
            )
            for item in items
        ]
        chosen = self._placing.place(candidates)
        return [
            replace(item, subscription=replace(item.subscription, server=server))
            for item, server in zip(items, chosen, strict=True)
        ]

    async def place_in_slices(
        self, items: Sequence[Prepared], hosts: Mapping[str, str] | None = None
    ) -> list[Prepared]:
        """Place as `place` does, with the event loop free after each slice."""
        placed: list[Prepared] = []
        began = time.monotonic()
        try:
            for item in items:
                placed += self.place([item], hosts)
                if time.monotonic() - began > SLICE_SECONDS:
                    await asyncio.sleep(0)
                    began = time.monotonic()
        except BaseException:
            self.ended(Counter(item.subscription.server for item in placed))
            raise
        return placed

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
            else:  # the caller went away: this task may await no more
                self._tasks.spawn(self.discard(together), "discarding")
            raise
        self.ended(ended)
        for replay in replays:
            self._on_replay(replay)

    def ended(self, by_server: Mapping[str, int]) -> None:
        for server, count in by_server.items():
            self._placing.remove_load(server, count)

    async def store(
        self, prepared: Sequence[Prepared], *, asking: bool = False
    ) -> dict[tuple[str, int], protocol.Stored]:
        """Every server stores its own, durably; then the routing table covers them all.

        What each answered, by server and topic. `asking`: sinks that must consent are asked before; else
        they are when there is something to post.
        """
        groups: dict[str, dict[int, list[Prepared]]] = {}
        for item in prepared:
            topics = groups.setdefault(item.subscription.server, {})
            topics.setdefault(item.topic.uid, []).append(item)
        stored: dict[tuple[str, int], protocol.Stored] = {}
        failed: list[Exception] = []

        async def work(server: str, waiting: list[tuple[int, list[Prepared]]]) -> None:
            while waiting and not failed:
                topic, items = waiting.pop()
                try:
                    stored[server, topic] = await self._store_on(server, items, asking)
                except Exception as error:
                    failed.append(error)

        # Answers that are due are awaited before a failure is raised: what is discarded then was stored.
        await asyncio.gather(
            *(
                work(server, waiting)
                for server, topics in groups.items()
                for waiting in [list(reversed(topics.items()))]
                for _ in range(min(MESSAGES_AT_ONCE, len(waiting)))
            )
        )
        if failed:
            raise failed[0]
        return stored

    async def _store_on(self, server: str, items: list[Prepared], asking: bool) -> protocol.Stored:
        """What it answered last: nothing that was stored before is missing from what it tells afterwards."""
        topic = max((item.topic for item in items), key=lambda topic: topic.revision)
        for first in range(0, len(items), STORED_AT_ONCE):
            some = items[first : first + STORED_AT_ONCE]
            named = {one.subscription.ring for one in some}
            rings = await self._log.reading(partial(signing_keys.read, ids=named))
            request = protocol.Store(
                self._log.id,
                self._log.incarnation,
                topic.info(),
                [one.item() for one in some],
                rings,
                asking,
            )
            stored = await self._calls.store(server, request)
            self._widen(server, topic, some, stored)
        return stored

    def _widen(self, server: str, topic: Topic, items: Sequence[Prepared], stored: protocol.Stored) -> None:
        """Route the events of these subscriptions to their server from now on."""
        rects = [item.bound.rects() for item in items]
        self._summaries.widen(server, topic.uid, rects, stored)

    async def discard(self, prepared: Sequence[Prepared]) -> None:
        """Tell the servers to forget what was stored for nothing; it costs only width until they do."""

        def forget(transaction: Transaction) -> None:
            by_server: dict[str, list[tuple[str, int]]] = {}
            for item in prepared:
                one = item.subscription
                by_server.setdefault(one.server, []).append((one.id, one.version))
            for server, versions in by_server.items():
                transaction.append_control(server, "deactivate", versions=versions)

        try:
            await self._log.submit(forget)
        except EdnError as error:
            logger.warning("discarding_failed", versions=len(prepared), reason=str(error))
            self._tasks.spawn(self._discard_later(forget), "discarding")

    async def _discard_later(self, forget: Callable[[Transaction], None]) -> None:
        """Try until the log takes it: nobody else would end these before the dispatcher's next start."""
        while True:
            await asyncio.sleep(AGAIN)
            with contextlib.suppress(EdnError):
                await self._log.submit(forget)
                return
