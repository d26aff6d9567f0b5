"""The life of a subscription: subscribe, change, renew, unsubscribe, expire.

Subscribing in the order that makes it safe: the server stores the filter, inactive; the routing table is
widened; *activate* is appended and the directory written in the same transaction; then the caller is
answered. Every event that the log takes from then on comes after it in that server's stream.

A filter's rectangles are computed here, not taken from the server's answer: so an answer that got lost can
never leave the table too narrow. Calls about one id follow one another; different ids do not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import structlog

from dispatcher import changes, directory, keyrings, replaying
from dispatcher.changes import Kind
from dispatcher.directory import Subscription
from dispatcher.exclusion import Exclusion
from dispatcher.log import Transaction
from dispatcher.network import Network
from dispatcher.placing import Candidate
from dispatcher.replaying import Replay
from dispatcher.topics import Topic, Topics
from edn import defects, wire
from edn.errors import Conflict, EdnError, NotFound, Unavailable
from edn.filter import BoundFilter, Filter
from edn.rect import Rects
from edn.soap.eventing import CANCELLED

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A checked request for one subscription."""

    id: str | None
    owner: str
    topic: Topic
    filter: Filter
    #: the filter, bound to the topic's schema
    bound: BoundFilter
    url: str
    recipient: str | None
    expires: int | None
    #: of the subscriber, if it matters where they are
    location: tuple[float, ...] | None = None
    #: the host that another server would choose
    suggested: str | None = None
    #: None: it begins now; else with what is available of that log time or later
    since: int | None = 0
    #: the secret that the subscriber gave
    secret: str | None = field(default=None, repr=False)
    #: id of the key ring that notifications are signed with; `keyrings` finds it
    ring: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A subscription that is about to begin, or to change."""

    subscription: Subscription
    topic: Topic
    bound: BoundFilter
    #: None: it begins now; else with what is available of that time or later
    since: int | None = 0
    #: it comes from another server, which may still have something to deliver
    arriving: bool = False


def new_id() -> str:
    """For a subscription whose subscriber chose none."""
    return f"sub_{secrets.token_urlsafe(15)}"


class Subscriptions:
    def __init__(self, network: Network, topics: Topics, on_replay: Callable[[Replay], None]) -> None:
        """`on_replay` hears of what a new subscription is to be told of the time before it."""
        self._on_replay = on_replay
        self._network = network
        self._log = network.log
        self._topics = topics
        self._placing = network.placing
        self.exclusion = Exclusion()

    # -- reading ----------------------------------------------------------------------------------------

    def get(self, subscription: str) -> Subscription:
        found = directory.find(self._log.reader, subscription)
        if found is None or (found.expires is not None and found.expires <= self._log.now()):
            raise NotFound(f'no subscription "{subscription[:80]}"')
        return found

    def page(
        self,
        *,
        limit: int,
        cursor: str | None,
        topic: Topic | None = None,
        owner: str | None = None,
        tenant: str | None = None,
    ) -> tuple[list[Subscription], str | None]:
        """Of a topic, an owner or a tenant, or of all."""
        topics, now = self._uids(topic, tenant), self._log.now()
        return directory.page(
            self._log.reader, now=now, limit=limit, cursor=cursor, topics=topics, owner=owner
        )

    async def search(
        self,
        text: str,
        *,
        limit: int,
        cursor: str | None,
        topic: Topic | None = None,
        owner: str | None = None,
        tenant: str | None = None,
    ) -> tuple[list[Subscription], str | None]:
        """A page of those that hold a text; in a thread, because it looks at every one."""
        topics, now = self._uids(topic, tenant), self._log.now()

        def look() -> tuple[list[Subscription], str | None]:
            with contextlib.closing(self._log.connect_reader()) as reader:
                return directory.page(
                    reader, now=now, limit=limit, cursor=cursor, topics=topics, owner=owner, search=text
                )

        return await asyncio.to_thread(look)

    def _uids(self, topic: Topic | None, tenant: str | None) -> list[int] | None:
        """Of a topic, or of a tenant's; None is all."""
        if topic is not None:
            return [topic.uid]
        return None if tenant is None else [one.uid for one in self._topics.all(tenant)]

    # -- changing ---------------------------------------------------------------------------------------

    async def create(self, wanted: Sequence[Wanted]) -> list[tuple[Subscription, bool]]:
        """All or none, and for each whether it is new: a repeated request gets what it made before."""
        named = [want.id for want in wanted if want.id is not None]
        repeated = (
            {name for name in named if named.count(name) > 1} if len(set(named)) < len(named) else set()
        )
        if repeated:
            raise Conflict(f'id "{min(repeated)}" stands twice in one request')
        async with self.exclusion.hold(named):
            standing = [self._standing(want) for want in wanted]
            new = [want for want, found in zip(wanted, standing, strict=True) if found is None]
            self._check_departures([want.id for want in new if want.id is not None])
            prepared = self._prepare(new) if new else []
            if prepared:
                await self._store_and_activate(prepared)
            fresh = iter(prepared)
            return [(found, False) if found else (next(fresh).subscription, True) for found in standing]

    def _standing(self, want: Wanted) -> Subscription | None:
        """The subscription that this request made before, if it did."""
        if want.id is None:
            return None
        found = directory.find(self._log.reader, want.id)
        if found is None or (found.expires is not None and found.expires <= self._log.now()):
            return None
        same = (
            found.owner == want.owner
            and found.topic == want.topic.uid
            and found.filter == want.filter.to_json()
            and found.url == want.url
            and found.recipient == want.recipient
            and (want.secret is None or found.ring == want.ring)
        )
        if not same:
            raise Conflict(
                f'subscription "{want.id}" exists with another owner, topic, filter or sink; '
                "PUT /v1/subscriptions/{id} changes it",
                pointer="/id",
            )
        return found

    def _check_departures(self, names: Sequence[str]) -> None:
        """What a server still keeps under an id is not to be taken for that of a new subscription."""
        for name in names:
            row = self._log.reader.execute(
                "SELECT source FROM moves WHERE subscription = ? AND keeping", (name,)
            ).fetchone()
            if row is not None:
                raise Unavailable(
                    f'subscription "{name}" ended while it was being moved away from {row[0]}: '
                    "its id is free when that is over",
                    retry_after=1,
                )

    def _prepare(self, wanted: Sequence[Wanted]) -> list[Prepared]:
        """Everything that is known before a server is asked; each has its server, and counts there."""
        candidates = [
            Candidate(want.topic.uid, want.bound.rects(), want.location, want.suggested) for want in wanted
        ]
        return [
            Prepared(
                Subscription(
                    id=want.id or new_id(),
                    version=self._first_version(want.id),
                    owner=want.owner,
                    topic=want.topic.uid,
                    filter=want.filter.to_json(),
                    url=want.url,
                    recipient=want.recipient,
                    expires=want.expires,
                    server=server,
                    created=self._log.now(),
                    location=want.location,
                    ring=want.ring,
                ),
                want.topic,
                want.bound,
                want.since,
            )
            for want, server in zip(wanted, self._placing.place(candidates), strict=True)
        ]

    def _first_version(self, id: str | None) -> int:
        """Above all that the id ever had, though another dispatcher's clock may have been ahead."""
        now = self._log.now()
        if id is None or not self._log.noting:
            return now
        former = changes.find(self._log.reader, Kind.SUBSCRIPTION, id)
        return now if former is None or former.version is None else max(now, former.version + 1)

    async def _store_and_activate(self, prepared: list[Prepared]) -> None:
        try:
            stored = await self.store(prepared)

            def append(transaction: Transaction) -> tuple[list[str], list[Replay]]:
                by_server: dict[str, list[Prepared]] = {}
                made_room: list[str] = []
                for item in prepared:
                    check_topic(transaction, item)
                    made_room += _end_expired(transaction, item.subscription.id)
                    directory.insert(transaction.connection, item.subscription, item.bound.attributes)
                    changes.note(
                        transaction,
                        Kind.SUBSCRIPTION,
                        item.subscription.id,
                        stored=stored[item.subscription.server, item.topic.uid],
                        since=item.since,
                    )
                    by_server.setdefault(item.subscription.server, []).append(item)
                replays: list[Replay] = []
                for server, items in by_server.items():
                    replays += activate(transaction, server, items)
                return made_room, replays

            made_room, replays = await self._log.submit(append)
            self._ended(Counter(made_room))
            for replay in replays:
                self._on_replay(replay)
        except BaseException as error:
            self._ended(Counter(item.subscription.server for item in prepared))
            if isinstance(error, EdnError):
                await self.discard(prepared)
            raise

    def _ended(self, by_server: Mapping[str, int]) -> None:
        for server, count in by_server.items():
            self._placing.ended(server, count)

    async def store(self, prepared: list[Prepared]) -> dict[tuple[str, int], wire.Stored]:
        """Every server stores its own, durably; then the routing table covers them all.

        What each answered, by server and topic.
        """
        groups: dict[tuple[str, int], list[Prepared]] = {}
        for item in prepared:
            groups.setdefault((item.subscription.server, item.topic.uid), []).append(item)
        # All answers are awaited before the first failure is raised: what is discarded then was stored.
        outcomes = await asyncio.gather(
            *(self._store_on(server, items) for (server, _), items in groups.items()), return_exceptions=True
        )
        stored = {}
        for place, outcome in zip(groups, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            stored[place] = outcome
        return stored

    async def _store_on(self, server: str, items: list[Prepared]) -> wire.Stored:
        topic = max((item.topic for item in items), key=lambda topic: topic.revision)
        request = wire.Store(
            self._log.id,
            self._log.incarnation,
            topic.info(),
            [_item(one) for one in items],
            keyrings.read(self._log.reader, {one.subscription.ring for one in items}),
        )
        stored = await self._network.store(server, request)
        moving = any(item.arriving for item in items)
        if not defects.planted("move-before-widening" if moving else "skip-the-widening"):  # for tests only
            widen(self._network, server, topic.uid, [item.bound.rects() for item in items], stored)
        return stored

    async def discard(self, prepared: list[Prepared]) -> None:
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

    async def change(self, subscription: str, want: Wanted) -> Subscription:
        """Replace filter, sink and expiry: the old hold up to the record's offset, the new after it."""
        async with self.exclusion.hold([subscription]):
            found = self.get(subscription)
            if found.topic != want.topic.uid:
                raise Conflict(
                    "a subscription stays on its topic; delete it and subscribe to the other one",
                    pointer="/topic",
                )
            changed = replace(
                found,
                version=max(found.version + 1, self._log.now()),
                filter=want.filter.to_json(),
                url=want.url,
                recipient=want.recipient,
                expires=want.expires,
                ring=want.ring,
            )
            item = Prepared(changed, want.topic, want.bound)

            def switch(transaction: Transaction) -> None:
                live(transaction, subscription)
                check_topic(transaction, item)
                directory.replace(transaction.connection, changed, item.bound.attributes)
                transaction.append_control(changed.server, "change", versions=[(changed.id, changed.version)])
                since = changes.find(transaction.connection, Kind.SUBSCRIPTION, subscription)
                changes.note(
                    transaction,
                    Kind.SUBSCRIPTION,
                    subscription,
                    stored=stored[changed.server, want.topic.uid],
                    since=since.since if since else None,
                )

            try:
                stored = await self.store([item])
                await self._log.submit(switch)
            except EdnError:
                await self.discard([item])
                raise
            self._placing.changed(
                changed.server, Candidate(want.topic.uid, want.bound.rects(), changed.location)
            )
            return changed

    async def renew(self, subscription: str, expires: int | None) -> Subscription:
        def operation(transaction: Transaction) -> Subscription:
            found = live(transaction, subscription)
            directory.renew(transaction.connection, subscription, expires)
            transaction.append_control(found.server, "renew", expiries=[(subscription, expires)])
            changes.note(transaction, Kind.SUBSCRIPTION, subscription, renewed=True)
            return replace(found, expires=expires)

        async with self.exclusion.hold([subscription]):
            return await self._log.submit(operation)

    async def pause(self, subscription: str, paused: bool) -> Subscription:
        """From the record on notifications are kept, not sent; or what was kept and what follows is sent."""

        def operation(transaction: Transaction) -> Subscription:
            found = live(transaction, subscription)
            if found.paused != paused:
                directory.pause(transaction.connection, subscription, paused)
                revision = changes.note(transaction, Kind.SUBSCRIPTION, subscription)
                kind: wire.Kind = "pause" if paused else "resume"
                transaction.append_control(found.server, kind, ids=[subscription], revision=revision)
            return replace(found, paused=paused)

        async with self.exclusion.hold([subscription]):
            return await self._log.submit(operation)

    async def delete(self, subscription: str, end: str = CANCELLED) -> None:
        """`end`: why, for sinks that want to be told; empty if the subscriber asked for it there."""

        def operation(transaction: Transaction) -> str:
            found = live(transaction, subscription)
            directory.delete(transaction.connection, subscription)
            transaction.append_control(found.server, "deactivate", ids=[subscription], end=end)
            changes.note_end(transaction, found)
            return found.server

        async with self.exclusion.hold([subscription]):
            self._placing.ended(await self._log.submit(operation))

    async def delete_covered(self, topic: Topic, owner: str, bound: BoundFilter) -> list[str]:
        """Cancel all subscriptions of an owner whose filter is covered; their ids, in the order of creation.

        One that changes meanwhile is left alone: it is not the one that was compared.
        """
        ended: list[str] = []
        cursor: str | None = None
        while True:
            page, cursor = self.page(limit=200, cursor=cursor, topic=topic, owner=owner)

            def covered(page: list[Subscription] = page) -> list[tuple[str, int]]:
                return [
                    (one.id, one.version)
                    for one in page
                    if bound.covers(Filter.parse(one.filter).bind(topic.schema))
                ]

            # Comparing filters may take a while; publishers shall not wait for it.
            found = await asyncio.to_thread(covered)
            if found:
                by_server = await self._log.submit(functools.partial(_end_unchanged, versions=found))
                self._ended({server: len(ids) for server, ids in by_server.items()})
                gone = {name for ids in by_server.values() for name in ids}
                ended += [name for name, _ in found if name in gone]
            if cursor is None:
                return ended

    async def sweep(self) -> int:
        """End what has expired; how many there were."""

        def operation(transaction: Transaction) -> dict[str, list[str]]:
            ids = directory.expired(transaction.connection, transaction.time, 1000)
            by_server: dict[str, list[str]] = {}
            for name in ids:
                found = directory.find(transaction.connection, name)
                assert found is not None
                directory.delete(transaction.connection, name)
                changes.note_end(transaction, found)
                by_server.setdefault(found.server, []).append(name)
            for server, ended in by_server.items():
                transaction.append_control(server, "deactivate", ids=ended)
            return by_server

        if not directory.expired(self._log.reader, self._log.now(), 1):
            return 0
        counts = {server: len(ids) for server, ids in (await self._log.submit(operation)).items()}
        self._ended(counts)
        return sum(counts.values())


def widen(network: Network, server: str, topic: int, rects: Iterable[Rects], stored: wire.Stored) -> None:
    """Route to a server what it has stored."""
    by_width: dict[int, list[Rects]] = {}
    for each in rects:
        by_width.setdefault(each.lo.shape[1], []).append(each)
    for same in by_width.values():
        lo, hi = np.concatenate([each.lo for each in same]), np.concatenate([each.hi for each in same])
        network.widen(server, topic, lo, hi, stored)


def activate(transaction: Transaction, server: str, items: Sequence[Prepared]) -> list[Replay]:
    """Append the record that activates them; the replays that it begins."""
    named = {item.subscription.id: (item.subscription.id, item.subscription.version) for item in items}
    behind = [
        item
        for item in items
        if item.since is not None and replaying.available(transaction, item.topic.uid, item.since)
    ]
    offset = transaction.append_control(
        server,
        "activate",
        versions=list(named.values()),
        replays=[named[item.subscription.id] for item in behind],
    )
    replays = [
        Replay(
            item.subscription.id,
            item.subscription.version,
            server,
            item.topic.uid,
            item.subscription.filter,
            offset,
            transaction.time,
            item.since,
        )
        for item in behind
    ]
    for replay in replays:
        replaying.note(transaction, replay)
    return replays


def _item(prepared: Prepared) -> wire.StoreItem:
    subscription = prepared.subscription
    return wire.StoreItem(
        subscription.id,
        subscription.version,
        subscription.owner,
        subscription.filter,
        subscription.url,
        subscription.recipient,
        subscription.expires,
        subscription.ring,
        prepared.arriving,
    )


def live(transaction: Transaction, subscription: str) -> Subscription:
    found = directory.find(transaction.connection, subscription)
    if found is None or (found.expires is not None and found.expires <= transaction.time):
        raise NotFound(f'no subscription "{subscription[:80]}"')
    return found


def _end_unchanged(transaction: Transaction, versions: list[tuple[str, int]]) -> dict[str, list[str]]:
    """End those that are still of that version; their ids, by server."""
    by_server: dict[str, list[str]] = {}
    for name, version in versions:
        found = directory.find(transaction.connection, name)
        if found is not None and found.version == version:
            directory.delete(transaction.connection, name)
            changes.note_end(transaction, found)
            by_server.setdefault(found.server, []).append(name)
    for server, ids in by_server.items():
        transaction.append_control(server, "deactivate", ids=ids, end=CANCELLED)
    return by_server


def _end_expired(transaction: Transaction, subscription: str) -> list[str]:
    """Make room for a new subscription under the id of one that has expired and was not swept yet; the server
    that it was on, if there was one.
    """
    found = directory.find(transaction.connection, subscription)
    if found is not None and found.expires is not None and found.expires <= transaction.time:
        directory.delete(transaction.connection, subscription)
        transaction.append_control(found.server, "deactivate", ids=[subscription])
        return [found.server]
    return []


def check_topic(transaction: Transaction, item: Prepared) -> None:
    """The topic may have changed since the filter was bound; what the filter uses must still be there."""
    row = transaction.connection.execute(
        "SELECT revision, attributes FROM topics WHERE uid = ?", (item.topic.uid,)
    ).fetchone()
    if row is None:
        raise NotFound(f'no topic "{item.topic.name}": it was deleted meanwhile')
    revision, attributes = row
    if revision == item.topic.revision:
        return
    types = json.loads(attributes)
    for name in item.bound.attributes:
        if types.get(name) != item.topic.schema.attributes[name]:
            raise Conflict(f'the schema of topic "{item.topic.name}" changed meanwhile: try again')
