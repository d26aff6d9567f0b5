"""Unsubscribing by a filter: all of an owner's subscriptions that it covers end.

One to a topic is covered by a filter on that topic, or on a subtree that it is in. One to a subtree is
covered by a filter on that or a larger subtree, if it is on every topic that it has.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Sequence

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


class Covering:
    def __init__(
        self, log: Log, topics: Topics, subscriptions: Subscriptions, installer: SubscriptionInstaller
    ) -> None:
        self._log = log
        self._topics = topics
        self._subscriptions = subscriptions
        self._installer = installer

    async def unsubscribe(self, place: Topic | Subtree, owner: str, filter: Filter) -> list[str]:
        """Cancel what is covered; the ids, in the order of creation.

        One that changes meanwhile is left alone: it is not the one that was compared.
        """
        ended: list[str] = []
        cursor: str | None = None
        while True:
            page, cursor = await self._subscriptions.page(limit=PAGE, cursor=cursor, topic=place, owner=owner)
            # Comparing filters may take a while; publishers shall not wait for it.
            found = await asyncio.to_thread(self._covered, place, filter, page)
            if found:
                gone, by_server = await self._log.submit(functools.partial(_end, versions=found))
                self._installer.ended(by_server)
                ended += [name for name, _ in found if name in gone]
            if cursor is None:
                return ended

    def _covered(
        self, place: Topic | Subtree, filter: Filter, page: Sequence[Subscription]
    ) -> list[tuple[str, int]]:
        """Return the covered subscriptions, with the compared version."""
        return [(one.id, one.version) for one in page if self._covers(place, filter, one)]

    def _covers(self, place: Topic | Subtree, filter: Filter, one: Subscription) -> bool:
        if one.subtree is not None:
            return namespace.includes(place.path, one.subtree) and subtree.covers(
                filter, one, self._topics.below(one.subtree)
            )
        topic = self._topics.by_uid(one.topic)
        if topic is None:
            return False
        theirs = Filter.parse(one.filter).bind(topic.schema)
        try:
            return subtree.bind(filter, topic).covers(theirs)
        except EdnError:
            return False  # on this topic of the subtree it means nothing


def _end(transaction: Transaction, versions: list[tuple[str, int]]) -> tuple[set[str], Counter[str]]:
    """End those that are still of that version; their ids, and how many ended on which server."""
    found = [(directory.find(transaction.connection, name), version) for name, version in versions]
    same = [one for one, version in found if one is not None and one.version == version]
    return {one.id for one in same}, lifecycle.end(transaction, same, CANCELLED)
