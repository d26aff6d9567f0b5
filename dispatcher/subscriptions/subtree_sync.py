"""Topics come, evolve and go, and subscriptions to the subtrees that they are in follow.

A topic is created in one transaction with the members that it gets: servers have stored them before, so the
first event that the topic can take is matched by all of them. If no server can store them, there is no topic.
One that evolves changes first and is joined then, before the answer: its columns must be the dispatcher's
before they are a server's. A topic that goes takes its members with it.

Where there are several dispatchers, two sides that did not see each other may each have made what the other
should have joined. Whoever carries out changes looks after that when it has learnt of topics or of
subscriptions to subtrees from another, and once when it starts.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import structlog

from dispatcher.auth.quotas import Room
from dispatcher.servers.admission import Leadership
from dispatcher.servers.summaries import Summaries
from dispatcher.store import directory
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection, Transaction
from dispatcher.subscriptions import lifecycle, subtree
from dispatcher.subscriptions.installer import SubscriptionInstaller
from dispatcher.subscriptions.lifecycle import Prepared, Stored
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.topics import Topic, Topics
from edn.errors import EdnError, Unavailable
from edn.model import namespace
from edn.model.filter import Filter

logger = structlog.get_logger()

#: seconds until what could not be set right is tried again
AGAIN = 1.0


class SubtreeSync:
    def __init__(
        self,
        log: Log,
        topics: Topics,
        subscriptions: Subscriptions,
        installer: SubscriptionInstaller,
        summaries: Summaries,
        leadership: Leadership,
    ) -> None:
        self._log = log
        self._summaries = summaries
        self._leadership = leadership
        self._topics = topics
        self._subscriptions = subscriptions
        self._installer = installer
        self._doubts = asyncio.Event()
        self._doubts.set()

    # -- calls ------------------------------------------------------------------------------------------

    async def put(
        self,
        name: str,
        attributes: Any,
        engine: str | None,
        availability: float | None = None,
        *,
        tenant: str = "",
        room: Room | None = None,
    ) -> tuple[Topic, bool]:
        """Create a topic, or change it, as `Topics.put` does, and have it joined; `room`: of the caller."""
        async with self._subscriptions.alone_in(tenant):
            draft = await self._topics.draft(name, attributes, engine, availability, tenant=tenant)
            if not self._topics.exists(draft):
                topic, new = await self._create(draft, availability, room)
                if new:
                    return topic, True
            else:
                topic, _ = await self._topics.put(draft, availability, room=room)
            for whole in await self._lacking(topic):
                await self._align(whole, room)
            return topic, False

    async def delete(self, name: str, *, cascade: bool, tenant: str = "") -> None:
        """Delete a topic, as `Topics.delete` does."""
        async with self._subscriptions.alone_in(tenant):
            uid, ended = await self._topics.delete(name, cascade=cascade, tenant=tenant)
        self._summaries.forget_topic(uid)
        self._installer.ended(ended)

    async def _create(
        self, draft: Topic, availability: float | None, room: Room | None
    ) -> tuple[Topic, bool]:
        now = self._log.now()
        wholes = await self._log.reading(lambda connection: directory.reaching(connection, draft.path, now))
        if not wholes:
            return await self._topics.put(
                draft, availability, lambda transaction: _check_reached(transaction, draft, []), room
            )
        version = self._log.next_version()
        prepared = await self._log.scanning(lambda connection: _members(connection, draft, wholes, version))
        if room is not None:
            # Early, too: before servers store anything for nothing.
            await self._log.reading(
                lambda connection: room.check_topics(connection, 1, len(draft.schema.columns))
            )
            await self._log.reading(lambda connection: room.check_members(connection, len(prepared)))
        placed = await self._installer.place_in_slices(prepared)

        def also(transaction: Transaction, stored: Stored) -> None:
            _check_reached(transaction, draft, wholes)
            if room is not None:
                room.check_members(transaction.connection, len(placed))
            lifecycle.begin(transaction, placed, stored)

        hosts = Counter(item.subscription.server for item in placed)
        try:
            stored = await self._installer.store(placed)
            topic, new = await self._topics.put(
                draft, availability, lambda transaction: also(transaction, stored), room
            )
        except BaseException as error:
            self._installer.ended(hosts)
            if isinstance(error, EdnError):
                await self._installer.discard(placed)
            raise
        if not new:  # it came from another dispatcher meanwhile
            self._installer.ended(hosts)
            await self._installer.discard(placed)
        return topic, new

    async def _lacking(self, topic: Topic) -> list[Subscription]:
        """Return subscriptions to subtrees that a topic is in and fits, but that have no member for it."""
        now = self._log.now()

        def look(connection: Connection) -> list[Subscription]:
            return [
                whole
                for whole in directory.reaching(connection, topic.path, now)
                if directory.find(connection, namespace.member_id(whole.id, topic.uid)) is None
            ]

        found = await self._log.reading(look)
        return [whole for whole in found if subtree.sort_out(Filter.parse(whole.filter), [topic])[0]]

    async def _align(self, whole: Subscription, room: Room | None = None) -> bool:
        """The caller must hold the tenant's lock."""
        members = await self._log.reading(lambda connection: directory.members(connection, whole.id))
        names = [whole.id, *(one.id for one in members)]
        async with self._subscriptions.lock.hold(names):
            return await self._subscriptions.align(whole, room=room)

    # -- what was missed --------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Topics, or subscriptions to subtrees, came from another dispatcher."""
        self._doubts.set()

    async def run(self) -> None:
        while True:
            await self._doubts.wait()
            try:
                if self._leadership.leads():
                    async with self._leadership.changing():
                        await self.settle()
            except EdnError as error:
                logger.warning("members of subtrees wait", reason=str(error))
            await asyncio.sleep(AGAIN)

    async def settle(self) -> None:
        """Bring every whole in line, and end members of those that are no more."""
        self._doubts.clear()
        try:
            for whole in await self._log.reading(directory.of_subtrees):
                async with self._subscriptions.alone_in(subtree.Subtree(str(whole.subtree)).tenant):
                    found = await self._log.reading(partial(directory.find, subscription=whole.id))
                    if found is not None and found.subtree is not None and await self._align(found):
                        logger.info("members were brought in line", subscription=whole.id)
            await self._end_orphans()
        except BaseException:
            self._doubts.set()
            raise

    async def _end_orphans(self) -> None:
        names = await self._log.scanning(directory.orphans)
        if not names:
            return

        def end(transaction: Transaction) -> Counter[str]:
            left = set(directory.orphans(transaction.connection)).intersection(names)
            found = [directory.find(transaction.connection, name) for name in sorted(left)]
            return lifecycle.end(transaction, [one for one in found if one is not None])

        async with self._subscriptions.lock.hold(names):
            self._installer.ended(await self._log.submit(end))


def _members(
    connection: Connection, topic: Topic, wholes: list[Subscription], version: int
) -> list[Prepared]:
    """Return the members that a new topic gets; in a thread: many filters take a while to understand."""
    found = []
    for whole in wholes:
        try:
            bound = subtree.bind(Filter.parse(whole.filter), topic)
        except EdnError:
            continue
        found.append(Prepared(subtree.new_member(connection, whole, topic, version), topic, bound, None))
    return found


def _check_reached(transaction: Transaction, topic: Topic, wholes: list[Subscription]) -> None:
    """Raise if other subscriptions reach a new topic than those that were looked at."""
    known = {(one.id, one.version) for one in wholes}
    found = directory.reaching(transaction.connection, topic.path, transaction.time)
    if {(one.id, one.version) for one in found} != known:
        raise Unavailable(f'subscriptions above "{topic.name}" changed meanwhile: try again', retry_after=0.1)
