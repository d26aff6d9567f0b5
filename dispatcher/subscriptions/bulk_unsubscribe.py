"""Ends all subscriptions of an owner that a filter covers.

A subscription to a topic is covered by a filter on that topic, or on a subtree that contains it. A subtree
subscription is covered by a filter on that or a larger subtree, if the filter covers it on all its topics.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial

from dispatcher.store import directory
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.subscriptions import lifecycle, subtree
from dispatcher.subscriptions.installer import SubscriptionInstaller
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.subtree import Subtree
from dispatcher.subscriptions.topics import Topic, Topics
from edn.errors import EdnError
from edn.formats.soap.eventing import CANCELLED
from edn.model import namespace
from edn.model.filter import Filter

#: subscriptions that are compared, and ended, at once
PAGE = 200


class BulkUnsubscriber:
    def __init__(
        self, log: Log, topics: Topics, subscriptions: Subscriptions, installer: SubscriptionInstaller
    ) -> None:
        self._log = log
        self._topics = topics
        self._subscriptions = subscriptions
        self._installer = installer

    async def unsubscribe(self, topic: Topic | Subtree, owner: str, filter: Filter) -> list[str]:
        """End the covered subscriptions; return their keys in the order of creation.

        A subscription that changes after the comparison is not ended.
        """
        ended: list[str] = []
        cursor: str | None = None
        while True:
            page, cursor = await self._subscriptions.page(limit=PAGE, cursor=cursor, topic=topic, owner=owner)
            # In a thread, because comparing filters may be slow.
            found = await asyncio.to_thread(self._covered, topic, filter, page)
            if found:
                gone, by_server = await self._log.submit(partial(_end, versions=found))
                self._installer.release_capacity(by_server)
                ended += [name for name, _ in found if name in gone]
            if cursor is None:
                return ended

    def _covered(
        self, topic: Topic | Subtree, filter: Filter, page: Sequence[Subscription]
    ) -> list[tuple[str, int]]:
        """Return the covered subscriptions, with the compared version."""
        return [(one.id, one.version) for one in page if self._covers(topic, filter, one)]

    def _covers(self, topic: Topic | Subtree, filter: Filter, one: Subscription) -> bool:
        if one.subtree is not None:
            return namespace.reaches(topic.path, one.subtree) and subtree.covers(
                filter, one, self._topics.below(one.subtree)
            )
        own = self._topics.by_uid(one.topic)
        if own is None:
            return False
        theirs = Filter.parse(one.filter).bind(own.schema)
        try:
            return subtree.bind(filter, own).covers(theirs)
        except EdnError:
            return False  # the filter does not fit this topic of the subtree


def _end(transaction: Transaction, versions: list[tuple[str, int]]) -> tuple[set[str], Counter[str]]:
    """End subscriptions that still have the compared version; return their keys, and the ends per server."""
    found = [(directory.find(transaction.connection, name), version) for name, version in versions]
    same = [one for one, version in found if one is not None and one.version == version]
    return {one.id for one in same}, lifecycle.end(transaction, same, CANCELLED)
