"""Topics: name, schema and engine. In memory for the hot path, changed only through the log.

Topics are found by (tenant, name); the tenant is the caller's and never part of a name in a request. The
**path** of a topic, `tenant/name` or the bare name for the operator, is its name in the store and for
operators. `path_of` refuses names with a slash, so that no name of one tenant is a path of another.

A topic that is created without an engine inherits the one that is bound to the nearest name above it
(`servers.bindings`). `subtree_sync` keeps subtree subscriptions in sync with topics.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from dataclasses import replace
from typing import Any

from dispatcher.auth.quotas import Room
from dispatcher.store import advertisement_rows, directory, topic_rows
from dispatcher.store.event_log import Log
from dispatcher.store.interface import OFF, Advertising, Kind, Transaction
from dispatcher.store.topic_rows import Topic as Topic
from edn.errors import Conflict, InvalidFilter, InvalidSchema, NotFound, PreconditionFailed
from edn.formats.counts import counted
from edn.formats.soap.eventing import CANCELLED
from edn.index import engine_name
from edn.index.engines import XPATH_URI
from edn.model import namespace
from edn.model.filter import Filter
from edn.model.schema import Schema

#: largest integer that all JSON readers keep exact
MAX_UID = (1 << 53) - 1


def path_of(tenant: str, name: str) -> str:
    """Return the path of a tenant's topic or subtree; raises `NotFound` for a name with a slash."""
    if "/" in name:
        raise not_found(name)
    return f"{tenant}/{name}" if tenant else name


def not_found(name: str) -> NotFound:
    if "/" in name:
        return NotFound(
            f'topic "{name[:80]}" does not exist: names have no slash; only keys of a tenant see its topics'
        )
    return NotFound(f'topic "{name[:80]}" does not exist; create it first (`edn topic create`)')


def check_dialect(filter: Filter, topic: Topic) -> None:
    """Raise if a filter in XPath is for a topic with another engine, because XPath is much slower."""
    if filter.uses_xpath and topic.engine != "xpath":
        raise InvalidFilter(
            f'the engine of topic "{topic.name}" must be xpath ({XPATH_URI}) for filters in XPath, '
            f"got {topic.engine}"
        )


def check_revision(draft: Topic, known: Topic | None, expected: int | None) -> None:
    """Raise unless a topic has the expected revision; 0: it must not exist, None: any will do."""
    revision = 0 if known is None else known.revision
    if expected is None or expected == revision:
        return
    if known is None:
        raise PreconditionFailed(f'topic "{draft.name}" does not exist, but revision {expected} was expected')
    if not expected:
        raise PreconditionFailed(f'topic "{draft.name}" exists already')
    raise PreconditionFailed(
        f'topic "{draft.name}" has revision {revision}, but revision {expected} was expected: '
        "it was changed in between"
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
        known = self._by_uid.get(topic.uid)
        if known is not None and known.revision > topic.revision:
            return  # another dispatcher has changed it meanwhile
        self._by_name[topic.tenant, topic.name] = topic
        self._by_uid[topic.uid] = topic

    def all(self, tenant: str | None = None) -> list[Topic]:
        """Return the topics of one tenant, or of all, by path."""
        found = [topic for topic in self._by_name.values() if tenant is None or topic.tenant == tenant]
        return sorted(found, key=lambda topic: topic.path)

    def get(self, name: str, tenant: str = "") -> Topic:
        try:
            return self._by_name[tenant, name]
        except KeyError:
            raise not_found(name) from None

    async def find(self, name: str, tenant: str = "") -> Topic:
        """Return a topic, also one that another dispatcher has just created; raises `NotFound`."""
        if (tenant, name) not in self._by_name:
            await self._log.refresh()
        return self.get(name, tenant)

    async def reload(self, topic: Topic) -> Topic:
        """Return the present state of a topic; raises `NotFound`."""
        found = await self._log.reading(topic_rows.find_by_uid, topic.uid)
        if found is None:
            raise not_found(topic.name)
        self.remember(found)
        return found

    def attributes(self, name: str, tenant: str) -> set[str]:
        """Return the names of a topic's attributes; none if the topic does not exist."""
        known = self._by_name.get((tenant, name))
        return set() if known is None else set(known.schema.types)

    def exists(self, draft: Topic) -> bool:
        return (draft.tenant, draft.name) in self._by_name

    def check_revision(self, draft: Topic, expected: int | None) -> None:
        """Raise unless the topic has the expected revision; 0: it must not exist, None: any will do."""
        check_revision(draft, self._by_name.get((draft.tenant, draft.name)), expected)

    def by_uid(self, uid: int) -> Topic | None:
        return self._by_uid.get(uid)

    def below(self, subtree: str) -> list[Topic]:
        """Return the topics of a subtree, given by its path."""
        found = [topic for topic in self._by_name.values() if namespace.includes(subtree, topic.path)]
        return sorted(found, key=lambda topic: topic.path)

    async def draft(
        self,
        name: str,
        attributes: Any,
        engine: str | None,
        availability: float | None = None,
        *,
        closed: bool = False,
        advertising: Advertising | None = None,
        tenant: str = "",
    ) -> Topic:
        """Return the topic that `put` would create; without an engine, it inherits one."""
        namespace.check_topic_name(name)
        path = path_of(tenant, name)
        try:
            schema = Schema.parse(attributes, closed=closed)
        except InvalidSchema as error:
            error.pointer = "/attributes" + (error.pointer or "")
            raise
        if engine is None:
            chosen = await self._log.reading(topic_rows.engine_for, path)
        else:
            chosen = engine_name(engine)
        return Topic(
            # Random, so that no two dispatchers assign the same one; 0 is not used.
            uid=1 + secrets.randbelow(MAX_UID),
            path=path,
            revision=1,
            schema=schema,
            engine=chosen,
            created=self._log.now(),
            availability=availability or 0.0,
            chosen=engine is not None,
            advertising=advertising or OFF,
        )

    async def put(
        self,
        draft: Topic,
        availability: float | None,
        closed: bool | None = None,
        room: Room | None = None,
        expected: int | None = None,
        advertising: Advertising | None = None,
    ) -> tuple[Topic, bool]:
        topic, new = await self._log.submit(
            lambda transaction: write(transaction, draft, availability, closed, room, expected, advertising)
        )
        self.remember(topic)
        return topic, new

    async def delete(self, name: str, *, cascade: bool, tenant: str = "") -> tuple[int, dict[str, int]]:
        """Delete a topic, with `cascade` also its subscriptions; return its uid, and the ends per server."""

        def operation(transaction: Transaction) -> tuple[int, dict[str, int]]:
            connection = transaction.connection
            uid = topic_rows.find_uid(connection, path_of(tenant, name))
            if uid is None:
                raise NotFound(f'topic "{name[:80]}" does not exist')
            # Subtree subscriptions go on without it.
            count = directory.count(connection, uid, members=False)
            if count and not cascade:
                raise Conflict(
                    f'topic "{name}" has {counted(count, "subscription")}: end '
                    f"{'it' if count == 1 else 'them'} first, or delete the topic with "
                    "cascade=true (`edn topic delete --cascade`)"
                )
            return uid, remove(transaction, uid, CANCELLED)

        uid, ended = await self._log.submit(operation)
        self.forget(uid)
        return uid, ended

    def forget(self, uid: int) -> None:
        topic = self._by_uid.pop(uid, None)
        if topic is not None and self._by_name[topic.tenant, topic.name].uid == uid:
            del self._by_name[topic.tenant, topic.name]


def write(
    transaction: Transaction,
    draft: Topic,
    availability: float | None,
    closed: bool | None,
    room: Room | None,
    expected: int | None = None,
    advertising: Advertising | None = None,
) -> tuple[Topic, bool]:
    """Create a topic, or change it to the draft; return it and whether it is new.

    An engine that the draft inherits, or None for the other settings, does not change an existing topic.
    """
    topic = topic_rows.find(transaction.connection, draft.path)
    check_revision(draft, topic, expected)
    if room is not None:
        columns = () if topic is None else topic.schema.columns
        schema = draft.schema if topic is None else topic.schema.evolve(draft.schema.attributes)
        room.check_topics(transaction.connection, int(topic is None), len(schema.columns) - len(columns))
    if topic is None:
        return _store(transaction, replace(draft, created=transaction.time)), True
    if availability is None:
        availability = topic.availability
    engine = draft.engine if draft.chosen else None
    if closed is None:
        closed = topic.closed
    mode = topic.advertising if advertising is None else advertising
    return _change(transaction, topic, draft.schema.attributes, engine, availability, closed, mode), False


def remove(transaction: Transaction, uid: int, end: str = "") -> dict[str, int]:
    """Delete a topic and its subscriptions; return how many ended per server.

    `end`: the reason, for sinks that get a message at the end.
    """
    connection = transaction.connection
    by_server: dict[str, list[str]] = defaultdict(list)
    for server, subscription in directory.places_of_topic(connection, uid):
        by_server[server].append(subscription)
        transaction.note(Kind.SUBSCRIPTION, subscription, server=server, more=-1)
    for server, ids in by_server.items():
        # Sinks get no message for members: their subtree subscription goes on.
        for are_members, reason in ((False, end), (True, "")):
            named = [id for id in ids if namespace.is_member(id) == are_members]
            if named:
                transaction.append_control(server, "deactivate", ids=named, end=reason)
    topic_rows.delete(transaction, uid)
    transaction.note(Kind.TOPIC, str(uid))
    return {server: len(ids) for server, ids in by_server.items()}


def _change(
    transaction: Transaction,
    topic: Topic,
    attributes: dict[str, Any],
    given: str | None,
    availability: float,
    closed: bool,
    advertising: Advertising,
) -> Topic:
    connection = transaction.connection
    engine, chosen = given or topic.engine, topic.chosen or given is not None
    if topic.schema.attributes == attributes and topic.engine == engine:
        settings = (availability, chosen, closed, advertising)
        if (topic.availability, topic.chosen, topic.closed, topic.advertising) == settings:
            return topic
        # The revision stays: bound filters remain valid.
        schema = replace(topic.schema, closed=closed)
        changed = replace(
            topic, schema=schema, availability=availability, chosen=chosen, advertising=advertising
        )
        return _store(transaction, changed)
    removed = set(topic.schema.removed(attributes))
    used = directory.attribute_users(connection, topic.uid, removed) if removed else {}
    if used:
        attribute, subscription = sorted(used.items())[0]
        raise Conflict(
            f'attribute "{attribute}" cannot be removed or change its type: the filter of subscription '
            f'"{namespace.public_id(subscription)}" uses it',
            pointer=f"/attributes/{attribute}",
        )
    advertised = advertisement_rows.attribute_users(connection, topic.uid, removed) if removed else {}
    if advertised:
        attribute, advertisement = sorted(advertised.items())[0]
        raise Conflict(
            f'attribute "{attribute}" cannot be removed or change its type: advertisement '
            f'"{namespace.id_of(advertisement)}" names it',
            pointer=f"/attributes/{attribute}",
        )
    if topic.engine != engine and directory.is_subscribed(connection, topic.uid):
        raise Conflict(
            f'engine must stay {topic.engine} while topic "{topic.name}" has subscriptions, got {engine}',
            pointer="/engine",
        )
    changed = replace(
        topic,
        revision=topic.revision + 1,
        schema=replace(topic.schema.evolve(attributes), closed=closed),
        engine=engine,
        availability=availability,
        chosen=chosen,
        advertising=advertising,
    )
    return _store(transaction, changed)


def _store(transaction: Transaction, topic: Topic) -> Topic:
    topic_rows.insert(transaction, topic)
    # Cached checks of publishers are bound to the schema and know whether it is enforced.
    topic_rows.touch_advertisements(transaction, topic.uid)
    transaction.note(Kind.TOPIC, str(topic.uid))
    return topic
