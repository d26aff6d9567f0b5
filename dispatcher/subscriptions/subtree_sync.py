"""Keeps subtree subscriptions in sync with topics that are created, evolve or are deleted.

A topic is created in one transaction with its members. Servers have stored the members before, so they match
the first event of the topic; if no server can store them, the topic is not created. A topic that evolves
changes first and gets its members then, before the answer: the dispatcher must know new columns before a
server does. Deleting a topic ends its members.

A dispatcher that dies between a change of a topic and that of its members leaves them unaligned; so each
syncs all of them at its start.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import structlog

from dispatcher.auth.quotas import Room
from dispatcher.servers.summaries import Summaries
from dispatcher.store import directory
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Advertising, Connection, Transaction
from dispatcher.store.replays import Replay
from dispatcher.subscriptions import lifecycle, subtree, topics
from dispatcher.subscriptions.installer import SubscriptionInstaller
from dispatcher.subscriptions.lifecycle import PendingVersion, Stored
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.topics import Topic, Topics
from edn.errors import EdnError, Unavailable
from edn.model import namespace
from edn.model.filter import Filter

logger = structlog.get_logger()

RETRY_SECONDS = 1.0


class SubtreeSync:
    def __init__(
        self,
        log: Log,
        topics: Topics,
        subscriptions: Subscriptions,
        installer: SubscriptionInstaller,
        summaries: Summaries,
    ) -> None:
        self._log = log
        self._summaries = summaries
        self._topics = topics
        self._subscriptions = subscriptions
        self._installer = installer

    async def put(
        self,
        name: str,
        attributes: Any,
        engine: str | None,
        availability: float | None = None,
        *,
        closed: bool | None = None,
        advertising: Advertising | None = None,
        tenant: str = "",
        room: Room | None = None,
        expected: int | None = None,
    ) -> tuple[Topic, bool]:
        """Create or change a topic and its members; `room`: of the caller.

        `expected`: the revision that the topic must have, or 0: it must not exist.
        """
        async with self._subscriptions.lock_tenant(tenant):
            await self._log.refresh()
            draft = await self._topics.draft(
                name,
                attributes,
                engine,
                availability,
                closed=bool(closed),
                advertising=advertising,
                tenant=tenant,
            )
            self._topics.check_revision(draft, expected)
            if not self._topics.exists(draft):
                return await self._create(draft, availability, closed, room), True
            topic, _ = await self._topics.put(draft, availability, closed, room, expected, advertising)
            for parent in await self._find_unjoined(topic):
                await self._align(parent, room)
            return topic, False

    async def delete(self, name: str, *, cascade: bool, tenant: str = "") -> None:
        async with self._subscriptions.lock_tenant(tenant):
            uid, ended = await self._topics.delete(name, cascade=cascade, tenant=tenant)
        self._summaries.forget_topic(uid)
        self._installer.release_capacity(ended)

    async def _create(
        self, draft: Topic, availability: float | None, closed: bool | None, room: Room | None
    ) -> Topic:
        created: list[Topic] = []
        items: list[PendingVersion] = []
        parents = await self._log.reading(directory.reaching, draft.path, self._log.now())
        if parents:
            items = await asyncio.to_thread(_new_members, draft, parents, self._log.next_version())
        if room is not None:
            # Also before servers store members in vain.
            await self._log.reading(room.check_topics, 1, len(draft.schema.columns))
            await self._log.reading(room.check_members, len(items))
        placed = await self._installer.place(items)

        def commit(transaction: Transaction, stored: Stored) -> tuple[Counter[str], list[Replay]]:
            _check_parents(transaction, draft, parents)
            topic, new = topics.write(transaction, draft, availability, closed, room)
            if not new:  # another dispatcher created it
                raise Unavailable(f'topic "{draft.name}" was just created: try again', retry_after=0.1)
            if room is not None:
                room.check_members(transaction.connection, len(placed))
            created.append(topic)
            return Counter(), lifecycle.begin(transaction, placed, stored)

        await self._installer.install(placed, commit)
        [topic] = created
        self._topics.remember(topic)
        return topic

    async def _find_unjoined(self, topic: Topic) -> list[Subscription]:
        """Return the subtree subscriptions that a topic fits, but that have no member for it."""
        now = self._log.now()

        def find(connection: Connection) -> list[Subscription]:
            return [
                parent
                for parent in directory.reaching(connection, topic.path, now)
                if directory.find(connection, namespace.member_id(parent.id, topic.uid)) is None
            ]

        found = await self._log.reading(find)
        return [parent for parent in found if subtree.sort_out(Filter.parse(parent.filter), [topic])[0]]

    async def _align(self, parent: Subscription, room: Room | None = None) -> bool:
        """Align one subtree subscription; the caller must hold the lock of the tenant."""
        family = await self._log.reading(directory.family, parent)
        async with self._subscriptions.lock.hold([one.id for one in family]):
            return await self._subscriptions.align(parent, room)

    async def run(self) -> None:
        """Sync once; repeat it if it fails."""
        while True:
            try:
                await self.sync()
                return
            except EdnError as error:
                logger.warning("subtree_sync_failed", reason=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def sync(self) -> None:
        """Align all subtree subscriptions, and end members without a subtree subscription."""
        for parent in await self._log.reading(directory.of_subtrees):
            async with self._subscriptions.lock_tenant(subtree.Subtree(str(parent.subtree)).tenant):
                found = await self._log.reading(directory.find, parent.id)
                if found is not None and found.subtree is not None and await self._align(found):
                    logger.info("subtree_aligned", subscription=parent.id)
        await self._end_orphans()

    async def _end_orphans(self) -> None:
        names = await self._log.scanning(directory.orphans)
        if not names:
            return

        def end(transaction: Transaction) -> Counter[str]:
            left = set(directory.orphans(transaction.connection)).intersection(names)
            found = [directory.find(transaction.connection, name) for name in sorted(left)]
            return lifecycle.end(transaction, [one for one in found if one is not None])

        async with self._subscriptions.lock.hold(names):
            self._installer.release_capacity(await self._log.submit(end))


def _new_members(topic: Topic, parents: list[Subscription], version: int) -> list[PendingVersion]:
    """Return the members for a new topic; in a thread, because binding many filters is slow."""
    return [
        PendingVersion(subtree.new_member(parent, topic, version), topic, bound, None)
        for parent in parents
        for _, bound in subtree.sort_out(Filter.parse(parent.filter), [topic])[0]
    ]


def _check_parents(transaction: Transaction, topic: Topic, parents: list[Subscription]) -> None:
    """Raise if the subtree subscriptions that contain a new topic have changed."""
    known = {(one.id, one.version) for one in parents}
    found = directory.reaching(transaction.connection, topic.path, transaction.time)
    if {(one.id, one.version) for one in found} != known:
        raise Unavailable(
            f'subtree subscriptions that contain "{topic.name}" changed during the request: try again',
            retry_after=0.1,
        )
