"""Topics: a name, a schema, a matcher. In memory for the hot path, changed only through the log's file.

A topic belongs to a tenant, and names are the tenant's own: topics are found by (tenant, name), where the
tenant is the caller's and never part of what a caller spells. A topic's **path**, `tenant/name` or the bare
name of one of the operator's, is what the log's file and operators call it. No name holds a slash: `path_of`
refuses one that does, so no name of one tenant is a path of another.

A topic that is created without a matcher gets the one that is bound to the nearest name above
(`servers.bindings`). What subscriptions to subtrees have to do with topics is `subtree_sync`'s.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dispatcher.auth.quotas import Room
from dispatcher.store import change_feed, directory, topic_rows
from dispatcher.store.change_feed import Kind
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.store.topic_rows import Topic as Topic
from edn.errors import Conflict, InvalidFilter, InvalidSchema, NotFound
from edn.formats.soap.eventing import CANCELLED
from edn.index import engine_name
from edn.index.engines import XPATH_URI
from edn.model import namespace
from edn.model.filter import Filter
from edn.model.schema import Schema

#: numbers that JSON readers keep; 0 is no topic's
MOST_UIDS = (1 << 53) - 1


def path_of(tenant: str, name: str) -> str:
    """Compose the path of a tenant's topic or subtree; raises `NotFound` for a name that holds a slash."""
    if "/" in name:
        raise not_found(name)
    return f"{tenant}/{name}" if tenant else name


def not_found(name: str) -> NotFound:
    if "/" in name:
        return NotFound(
            f'no topic "{name[:80]}": a name holds no slash; a tenant\'s topics are for its own keys'
        )
    return NotFound(f'no topic "{name[:80]}"; PUT /v1/topics/{{name}} creates one')


def check_dialect(filter: Filter, topic: Topic) -> None:
    """XPath is for topics whose engine it is: it costs their events much more than other filters do."""
    if filter.uses_xpath and topic.engine != "xpath":
        raise InvalidFilter(
            f'topic "{topic.name}" has the engine {topic.engine}; filters in XPath are for topics with the '
            f"engine xpath, or {XPATH_URI}"
        )


class Topics:
    """All topics, by (tenant, name) and by uid."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._by_name: dict[tuple[str, str], Topic] = {}
        self._by_uid: dict[int, Topic] = {}
        for topic in log.load(topic_rows.all_topics):
            self.remember(topic)

    def remember(self, topic: Topic) -> None:
        """It is in the log's file."""
        self._by_name[topic.tenant, topic.name] = topic
        self._by_uid[topic.uid] = topic

    def all(self, tenant: str | None = None) -> list[Topic]:
        """Of one tenant, or of all."""
        found = [topic for topic in self._by_name.values() if tenant is None or topic.tenant == tenant]
        return sorted(found, key=lambda topic: topic.path)

    def get(self, name: str, tenant: str = "") -> Topic:
        try:
            return self._by_name[tenant, name]
        except KeyError:
            raise not_found(name) from None

    def exists(self, draft: Topic) -> bool:
        """Whether there is a topic of this tenant and name."""
        return (draft.tenant, draft.name) in self._by_name

    def by_uid(self, uid: int) -> Topic | None:
        return self._by_uid.get(uid)

    def below(self, subtree: str) -> list[Topic]:
        """Those of a subtree, by its path."""
        found = [topic for topic in self._by_name.values() if namespace.includes(subtree, topic.path)]
        return sorted(found, key=lambda topic: topic.path)

    async def draft(
        self,
        name: str,
        attributes: Any,
        engine: str | None,
        availability: float | None = None,
        *,
        tenant: str = "",
    ) -> Topic:
        """The topic that `put` would create; without an engine with the one that it inherits."""
        namespace.check_topic_name(name)
        path = path_of(tenant, name)
        try:
            schema = Schema.parse(attributes)
        except InvalidSchema as error:
            error.pointer = "/attributes" + (error.pointer or "")
            raise
        if engine is None:
            chosen = await self._log.reading(lambda connection: topic_rows.engine_for(connection, path))
        else:
            chosen = engine_name(engine)
        return Topic(
            # At random: the same everywhere, and no dispatcher gives one that another has given.
            uid=1 + secrets.randbelow(MOST_UIDS),
            path=path,
            revision=1,
            schema=schema,
            engine=chosen,
            created=self._log.now(),
            availability=availability or 0.0,
            chosen=engine is not None,
        )

    async def put(
        self,
        draft: Topic,
        availability: float | None,
        also: Callable[[Transaction], None] = lambda _: None,
        room: Room | None = None,
    ) -> tuple[Topic, bool]:
        """Create a topic, or change it to what the draft has; whether it is new.

        An engine that was not chosen stays as it is, and so does the availability if it is None. `also` is
        done in the transaction that creates it. `room`: what the caller may add.
        """
        engine = draft.engine if draft.chosen else None

        def operation(transaction: Transaction) -> tuple[Topic, bool]:
            topic = topic_rows.find(transaction.connection, draft.path)
            if topic is None:
                if room is not None:
                    room.check_topics(transaction.connection, 1, len(draft.schema.columns))
                topic = _store(transaction, replace(draft, created=transaction.time))
                also(transaction)
                return topic, True
            lasting = topic.availability if availability is None else availability
            if room is not None:
                wider = topic.schema.evolve(draft.schema.attributes)
                more = len(wider.columns) - len(topic.schema.columns)
                room.check_topics(transaction.connection, 0, more)
            return _change(transaction, topic, draft.schema.attributes, engine, lasting), False

        topic, new = await self._log.submit(operation)
        self.remember(topic)
        return topic, new

    async def delete(self, name: str, *, cascade: bool, tenant: str = "") -> tuple[int, dict[str, int]]:
        """Delete a topic, with `cascade` its subscriptions too; its uid, and how many ended where."""

        def operation(transaction: Transaction) -> tuple[int, dict[str, int]]:
            connection = transaction.connection
            uid = topic_rows.find_uid(connection, path_of(tenant, name))
            if uid is None:
                raise NotFound(f'no topic "{name[:80]}"')
            # Those to subtrees live on without it.
            count = directory.count(connection, uid, members=False)
            if count and not cascade:
                raise Conflict(
                    f'topic "{name}" has {count} subscriptions; ?cascade=true deletes them with it'
                )
            return uid, remove(transaction, uid, CANCELLED)

        uid, ended = await self._log.submit(operation)
        self.forget(uid)
        return uid, ended

    def forget(self, uid: int) -> None:
        """It is deleted in the log's file."""
        topic = self._by_uid.pop(uid, None)
        if topic is not None and self._by_name[topic.tenant, topic.name].uid == uid:
            del self._by_name[topic.tenant, topic.name]


def remove(transaction: Transaction, uid: int, end: str = "") -> dict[str, int]:
    """Delete a topic and its subscriptions; how many ended on which server.

    `end`: why, for sinks that want to be told; of several dispatchers only one tells them.
    """
    connection = transaction.connection
    by_server: dict[str, list[str]] = {}
    for server, subscription in directory.places_of_topic(connection, uid):
        by_server.setdefault(server, []).append(subscription)
        if transaction.noting:
            found = directory.find(connection, subscription)
            assert found is not None
            change_feed.note_end(transaction, found)
    for server, ids in by_server.items():
        # What a member is part of goes on: nobody is told of an end.
        for named, told in (
            ([id for id in ids if not namespace.is_member(id)], end),
            ([id for id in ids if namespace.is_member(id)], ""),
        ):
            if named:
                transaction.append_control(server, "deactivate", ids=named, end=told)
    topic_rows.delete(transaction, uid)
    change_feed.note(transaction, Kind.TOPIC, str(uid), gone=transaction.time)
    return {server: len(ids) for server, ids in by_server.items()}


def _change(
    transaction: Transaction,
    topic: Topic,
    attributes: dict[str, Any],
    given: str | None,
    availability: float,
) -> Topic:
    connection = transaction.connection
    engine, chosen = given or topic.engine, topic.chosen or given is not None
    if topic.schema.attributes == attributes and topic.engine == engine:
        if (topic.availability, topic.chosen) == (availability, chosen):
            return topic
        # Not a change of the schema: what was bound to it stays bound.
        return _store(transaction, replace(topic, availability=availability, chosen=chosen))
    removed = set(topic.schema.removed(attributes))
    used = directory.attribute_users(connection, topic.uid, removed) if removed else {}
    if used:
        attribute, subscription = sorted(used.items())[0]
        raise Conflict(
            f'attribute "{attribute}" cannot be removed or change its type: the filter of subscription '
            f"{namespace.public_id(subscription)} uses it",
            pointer=f"/attributes/{attribute}",
        )
    if topic.engine != engine and directory.is_subscribed(connection, topic.uid):
        raise Conflict(
            f'topic "{topic.name}" has subscriptions: its engine stays {topic.engine}', pointer="/engine"
        )
    schema = topic.schema.evolve(attributes)
    return _store(
        transaction,
        replace(
            topic,
            revision=topic.revision + 1,
            schema=schema,
            engine=engine,
            availability=availability,
            chosen=chosen,
        ),
    )


def _store(transaction: Transaction, topic: Topic) -> Topic:
    topic_rows.insert(transaction, topic)
    change_feed.note(transaction, Kind.TOPIC, str(topic.uid))
    return topic
