"""Creates, changes and ends advertisements.

An advertisement is checked against the topic's schema in the transaction that stores it, because the schema
may have changed since the request arrived. After the commit the compiled forms of the topic are forgotten
here; other dispatchers forget them when they hear of the change (`dispatcher.network.foreign_changes`), and
notice it before that by the topic's revision (`guard`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dispatcher.auth.caller import Caller
from dispatcher.auth.keys import Scope
from dispatcher.store import advertisement_rows, topic_rows
from dispatcher.store.advertisement_rows import Advertisement as Row
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.subscriptions.expiry import parse_expires
from dispatcher.subscriptions.topics import Topic, Topics, path_of
from edn.errors import Conflict, EdnError, Forbidden, NotFound, TooLarge
from edn.model import namespace
from edn.model.coordinates import rfc3339
from edn.model.filter.advertisement import Advertisement
from edn.model.schema import Schema
from edn.runtime.ownership import owned

#: advertisements of one publisher on one topic
MOST = 10_000
#: expired advertisements that are deleted at once
EXPIRED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAdvertisement:
    topic: str
    advertisement: Any
    publisher: str | None = None
    expires: str | None = None
    id: str | None = None


@owned("loop")
class Advertisements:
    def __init__(self, log: Log, topics: Topics, on_change: Callable[[int], None]) -> None:
        """`on_change` gets the uid of a topic whose advertisements have changed."""
        self._log = log
        self._topics = topics
        self._on_change = on_change

    # -- reading ----------------------------------------------------------------------------------------

    async def find(self, who: Caller, id: str) -> Row:
        """Return a live advertisement of the caller's tenant; the operator sees all, by their keys."""
        key = id if who.is_operator else namespace.key_of(who.tenant, id)
        found = await self._log.reading(advertisement_rows.find_live, key, self._log.now())
        if found is None:
            raise _not_found(key)
        if self._topics.by_uid(found.topic) is None:
            await self.refresh()
        return found

    async def refresh(self) -> None:
        """Learn the topics and subscriptions that other dispatchers have created so far."""
        await self._log.refresh()

    async def page(
        self,
        who: Caller,
        *,
        limit: int,
        cursor: str | None = None,
        topic: str | None = None,
        publisher: str | None = None,
    ) -> tuple[list[Row], str | None]:
        uids: list[int] | None = None
        if topic is not None:
            uids = [(await self._topics.find(topic, who.tenant)).uid]
        elif not who.is_operator:
            uids = [one.uid for one in self._topics.below(path_of(who.tenant, namespace.ALL))]
        return await self._log.reading(
            advertisement_rows.page,
            now=self._log.now(),
            limit=limit,
            cursor=cursor,
            topics=uids,
            publisher=publisher,
        )

    def view(self, found: Row, who: Caller) -> dict[str, Any]:
        topic = self._topics.by_uid(found.topic)
        is_own = namespace.owner_of(found.id) == who.tenant
        return {
            "id": namespace.id_of(found.id) if is_own else found.id,
            "topic": "" if topic is None else topic.name if is_own else topic.path,
            "publisher": found.publisher,
            "advertisement": found.advertisement,
            "expires": None if found.expires is None else rfc3339(found.expires),
            "created": rfc3339(found.created),
        }

    # -- changing ---------------------------------------------------------------------------------------

    async def create(self, body: NewAdvertisement, who: Caller) -> tuple[Row, bool]:
        """Store an advertisement; return it, and whether it is new or the request is a repeat."""
        try:
            topic = await self._topics.find(body.topic, who.tenant)
        except NotFound as error:
            error.pointer = "/topic"
            raise
        publisher = _publisher(body.publisher, who)
        parsed = await self._parse(body.advertisement, topic.schema)
        key = namespace.key_of(who.tenant, body.id or f"adv_{secrets.token_urlsafe(15)}")
        new = Row(
            id=key,
            version=self._log.next_version(),
            topic=topic.uid,
            publisher=publisher,
            advertisement=parsed.to_json(),
            expires=self._expires(body.expires),
            created=self._log.estimate(),
        )

        def operation(transaction: Transaction) -> tuple[Row, bool]:
            connection = transaction.connection
            existing = advertisement_rows.find(connection, key)
            if existing is not None and existing.is_expired(transaction.time):
                advertisement_rows.delete(transaction, existing)
                existing = None
            if existing is not None:
                _check_repeat(existing, new, parsed)
                return existing, False
            _check_schema(transaction, topic, parsed)
            if advertisement_rows.count(connection, topic.uid, publisher) >= MOST:
                raise TooLarge(
                    f'publisher "{publisher}" must have at most {MOST:,} advertisements on topic '
                    f'"{topic.name}"; advertise more in each of them'
                )
            advertisement_rows.insert(transaction, new)
            return new, True

        stored, is_new = await self._log.submit(operation)
        if is_new:
            self._on_change(topic.uid)
        return stored, is_new

    async def change(self, id: str, given: Any, expires: str | None, who: Caller) -> Row:
        """Replace what is advertised, and the expiry."""
        found = await self.find(who, id)
        _check_owner(found, who)
        topic = self._topics.by_uid(found.topic)
        if topic is None:
            raise _not_found(found.id)
        parsed = await self._parse(given, topic.schema)
        until = self._expires(expires)

        def operation(transaction: Transaction) -> Row:
            current = _find_live(transaction, found.id)
            _check_schema(transaction, topic, parsed)
            version = max(current.version + 1, self._log.next_version())
            changed = replace(current, version=version, advertisement=parsed.to_json(), expires=until)
            advertisement_rows.replace(transaction, changed)
            return changed

        changed = await self._log.submit(operation)
        self._on_change(topic.uid)
        return changed

    async def delete(self, id: str, who: Caller) -> None:
        found = await self.find(who, id)
        _check_owner(found, who)
        await self._log.submit(
            lambda transaction: advertisement_rows.delete(transaction, _find_live(transaction, found.id))
        )
        self._on_change(found.topic)

    async def delete_covered(self, topic: Topic, given: Any, publisher: str | None, who: Caller) -> list[str]:
        """End the advertisements of a publisher that another one covers; return their keys.

        One that changes after the comparison is not ended.
        """
        name = _publisher(publisher, who)
        parsed = await self._parse(given, topic.schema)
        rows = await self._log.reading(advertisement_rows.of_publisher, topic.uid, name, self._log.now())
        # In a thread, because comparing may be slow.
        covered = await asyncio.to_thread(_find_covered, parsed, rows, topic.schema)
        if not covered:
            return []

        def operation(transaction: Transaction) -> list[str]:
            ended = []
            for one in covered:
                current = advertisement_rows.find(transaction.connection, one.id)
                if current is not None and current.version == one.version:
                    advertisement_rows.delete(transaction, current)
                    ended.append(one.id)
            return ended

        ended = await self._log.submit(operation)
        self._on_change(topic.uid)
        return ended

    async def end_expired(self) -> int:
        """Delete up to 1000 expired advertisements; return how many."""
        if not await self._log.reading(advertisement_rows.expired, self._log.now(), 1):
            return 0

        def operation(transaction: Transaction) -> list[Row]:
            found = advertisement_rows.expired(transaction.connection, transaction.time, EXPIRED)
            for one in found:
                advertisement_rows.delete(transaction, one)
            return found

        ended = await self._log.submit(operation)
        for topic in {one.topic for one in ended}:
            self._on_change(topic)
        return len(ended)

    async def count_narrowed(self, topic: Topic) -> int:
        """Count the advertisements that cover no event with an attribute that they do not name."""
        rows = await self._log.reading(advertisement_rows.of_topic, topic.uid, self._log.now())
        return sum(not Advertisement.parse(row.advertisement).is_open for row in rows)

    # -- checks -----------------------------------------------------------------------------------------

    async def _parse(self, given: Any, schema: Schema) -> Advertisement:
        try:
            parsed = Advertisement.parse(given)
            # In a thread, because there may be a thousand predicates.
            await asyncio.to_thread(parsed.bind, schema)
        except EdnError as error:
            error.pointer = "/advertisement" + (error.pointer or "")
            raise
        return parsed

    def _expires(self, text: str | None) -> int | None:
        if text is None:
            return None
        return parse_expires(text, self._log.now(), estimate=self._log.estimate())


def _publisher(given: str | None, who: Caller) -> str:
    """Return the publisher of an advertisement: the name of the key; scope admin may set another."""
    if given is None or given == who.name or Scope.ADMIN in who.scopes:
        return given or who.name
    error = Forbidden(
        f'publisher must be "{who.name}", the name of the key, got "{given[:80]}"; a key with the scope '
        "admin may set another one"
    )
    error.pointer = "/publisher"
    raise error


def _check_owner(found: Row, who: Caller) -> None:
    if found.publisher != who.name and Scope.ADMIN not in who.scopes:
        raise Forbidden(
            f'advertisement "{namespace.id_of(found.id)}" belongs to the publisher "{found.publisher}"; only '
            "its key, or a key with the scope admin, may change it"
        )


def _check_repeat(existing: Row, new: Row, parsed: Advertisement) -> None:
    """Raise unless an earlier request like this one created the advertisement."""
    same = (
        existing.topic == new.topic
        and existing.publisher == new.publisher
        and Advertisement.parse(existing.advertisement) == parsed
    )
    if not same:
        raise Conflict(
            f'advertisement "{namespace.id_of(new.id)}" exists with another publisher, topic or content; '
            "change it instead (`edn advertisement change`)",
            pointer="/id",
        )


def _check_schema(transaction: Transaction, topic: Topic, parsed: Advertisement) -> None:
    """Raise if the topic was deleted, or its schema no longer fits."""
    current = topic_rows.find_by_uid(transaction.connection, topic.uid)
    if current is None:
        raise NotFound(f'topic "{topic.name}" does not exist: it was deleted during the request')
    if current.revision != topic.revision:
        try:
            parsed.bind(current.schema)
        except EdnError as error:
            raise Conflict(
                f'the schema of topic "{topic.name}" changed during the request: {error.detail}'
            ) from None


def _find_live(transaction: Transaction, key: str) -> Row:
    found = advertisement_rows.find_live(transaction.connection, key, transaction.time)
    if found is None:
        raise _not_found(key)
    return found


def _find_covered(wide: Advertisement, rows: Sequence[Row], schema: Schema) -> list[Row]:
    bound = wide.bind(schema)
    found = []
    for row in rows:
        try:
            if bound.covers(Advertisement.parse(row.advertisement).bind(schema)):
                found.append(row)
        except EdnError:
            continue  # the schema has just changed
    return found


def _not_found(key: str) -> NotFound:
    return NotFound(f'advertisement "{namespace.id_of(key)[:80]}" does not exist')
