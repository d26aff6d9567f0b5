"""The life of a subscription: subscribe, change, renew, unsubscribe, expire.

Subscribing in the order that makes it safe: the server stores the filter, inactive; the routing table is
widened (`installer`); *activate* is appended and the directory written in the same transaction; then the
caller is answered. Every event that the log takes from then on comes after it in that server's stream. Calls
about one id follow one another; different ids do not wait.

One to a subtree is a row and its members (see `subtree`): whatever happens to it happens to all of them in
one transaction. Such calls, and those that create or delete a topic, follow one another a tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dispatcher.auth.quotas import Room
from dispatcher.servers.placement import Candidate, Placer
from dispatcher.store import change_feed, directory, repartitions
from dispatcher.store.change_feed import Kind
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection, Transaction
from dispatcher.store.replays import Replay
from dispatcher.subscriptions import lifecycle, subtree
from dispatcher.subscriptions.installer import SubscriptionInstaller
from dispatcher.subscriptions.keyed_lock import KeyedLock
from dispatcher.subscriptions.lifecycle import Prepared, check_topic, live
from dispatcher.subscriptions.subtree import Alignment, Subtree
from dispatcher.subscriptions.topics import Topic, Topics, path_of
from edn.errors import Conflict, EdnError, NotFound, Unavailable
from edn.formats.soap.eventing import CANCELLED
from edn.model import namespace
from edn.model.filter import BoundFilter, Filter
from edn.runtime import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A checked request for one subscription."""

    #: its key (`edn.model.namespace`); None: one is made
    id: str | None
    owner: str
    topic: Topic | Subtree
    filter: Filter
    #: the filter, bound to the topic's schema; None for a subtree, whose topics have several
    bound: BoundFilter | None
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
    #: id of the key ring that notifications are signed with; `signing_rings` finds it
    ring: str = ""

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that the filter constrains."""
        return self.filter.attributes if self.bound is None else self.bound.attributes


def check_room(room: Room | None, connection: Connection, wanted: Sequence[Wanted]) -> None:
    """Raise `Overloaded` if a caller's quota has no room for these; one under the same id makes room."""
    if room is not None:
        room.check_subscriptions(
            connection,
            [want.filter.predicates for want in wanted],
            [want.id for want in wanted if want.id is not None],
        )


def new_id(tenant: str) -> str:
    """Make the key of a tenant's subscription whose subscriber chose no id."""
    return namespace.key_of(tenant, f"sub_{secrets.token_urlsafe(15)}")


class Subscriptions:
    def __init__(self, log: Log, topics: Topics, placing: Placer, installer: SubscriptionInstaller) -> None:
        self._log = log
        self._topics = topics
        self._placing = placing
        self._installer = installer
        self.lock = KeyedLock()

    # -- reading ----------------------------------------------------------------------------------------

    async def get(self, subscription: str) -> Subscription:
        found = await self._log.reading(lambda connection: directory.find(connection, subscription))
        if found is None or (found.expires is not None and found.expires <= self._log.now()):
            raise NotFound(f'no subscription "{namespace.told_as(subscription)[:80]}"')
        return found

    async def page(
        self,
        *,
        limit: int,
        cursor: str | None,
        topic: Topic | Subtree | None = None,
        owner: str | None = None,
        tenant: str | None = None,
        search: str | None = None,
        members: bool = False,
    ) -> tuple[list[Subscription], str | None]:
        """Return a page of a topic, a subtree, an owner or a tenant, or of all; `search`: with a text."""
        topics, below = self._scope(topic, tenant)
        now = self._log.now()

        def look(connection: Connection) -> tuple[list[Subscription], str | None]:
            return directory.page(
                connection,
                now=now,
                limit=limit,
                cursor=cursor,
                topics=topics,
                below=below,
                owner=owner,
                search=search,
                members=members,
            )

        # A search looks at every subscription.
        return await (self._log.reading(look) if search is None else self._log.scanning(look))

    def _scope(
        self, topic: Topic | Subtree | None, tenant: str | None
    ) -> tuple[list[int] | None, str | None]:
        """`topics` and `below` of `directory.page`."""
        if isinstance(topic, Topic):
            return [topic.uid], None
        below = (
            topic.path if topic is not None else None if tenant is None else path_of(tenant, namespace.ALL)
        )
        return (None, None) if below is None else ([one.uid for one in self._topics.below(below)], below)

    async def left_out(self, whole: Subscription) -> list[subtree.LeftOut]:
        """The topics of a subtree that the filter does not fit."""
        assert whole.subtree is not None
        below = self._topics.below(whole.subtree)
        _, others = await asyncio.to_thread(subtree.sort_out, Filter.parse(whole.filter), below)
        return others

    # -- one after the other ----------------------------------------------------------------------------

    def alone_in(self, tenant: str) -> contextlib.AbstractAsyncContextManager[None]:
        """No other call that makes or ends topics, or changes what subtrees have to do with them."""
        # Not an id; whoever takes ids as well takes them after it.
        return self.lock.hold([f"/{tenant}"])

    @contextlib.asynccontextmanager
    async def alone_with(self, subscription: str) -> AsyncIterator[None]:
        """No other call about it, or about its members."""
        async with contextlib.AsyncExitStack() as stack:
            names = [subscription]
            found = await self._log.reading(lambda connection: directory.find(connection, subscription))
            if found is not None and found.subtree is not None:
                await stack.enter_async_context(self.alone_in(Subtree(found.subtree).tenant))
                names += await self._log.reading(
                    lambda connection: [one.id for one in directory.members(connection, subscription)]
                )
            await stack.enter_async_context(self.lock.hold(names))
            yield

    # -- changing ---------------------------------------------------------------------------------------

    async def create(
        self, wanted: Sequence[Wanted], room: Room | None = None
    ) -> list[tuple[Subscription, bool]]:
        """All or none, and for each whether it is new: a repeated request gets what it made before."""
        named = [want.id for want in wanted if want.id is not None]
        repeated = (
            {name for name in named if named.count(name) > 1} if len(set(named)) < len(named) else set()
        )
        if repeated:
            raise Conflict(f'id "{namespace.told_as(min(repeated))}" stands twice in one request')
        async with contextlib.AsyncExitStack() as stack:
            for tenant in sorted({want.topic.tenant for want in wanted if isinstance(want.topic, Subtree)}):
                await stack.enter_async_context(self.alone_in(tenant))
            await stack.enter_async_context(self.lock.hold(named))
            standing = await self._log.reading(
                lambda connection: [self._standing(connection, want) for want in wanted]
            )
            new = [want for want, found in zip(wanted, standing, strict=True) if found is None]
            made = iter(await self._begin(new, room) if new else [])
            return [(found, False) if found else (next(made), True) for found in standing]

    def _standing(self, connection: Connection, want: Wanted) -> Subscription | None:
        """The subscription that this request made before, if it did."""
        if want.id is None:
            return None
        found = directory.find(connection, want.id)
        if found is None or (found.expires is not None and found.expires <= self._log.now()):
            return None
        same = (
            found.owner == want.owner
            and _is_to(found, want.topic)
            and found.filter == want.filter.to_json()
            and found.url == want.url
            and found.recipient == want.recipient
            and (want.secret is None or found.ring == want.ring)
        )
        if not same:
            raise Conflict(
                f'subscription "{namespace.told_as(want.id)}" exists with another owner, topic, filter or '
                "sink; PUT /v1/subscriptions/{id} changes it",
                pointer="/id",
            )
        return found

    async def _check_departures(self, names: Sequence[str]) -> None:
        """What a server still keeps under an id is not to be taken for that of a new subscription."""
        row = await self._log.reading(lambda connection: repartitions.find_keeping(connection, names))
        if row is not None:
            raise Unavailable(
                f'subscription "{namespace.told_as(row[0])}" ended while it was being moved away from '
                f"{row[1]}: its id is free when that is over",
                retry_after=1,
            )

    async def _begin(self, wanted: Sequence[Wanted], room: Room | None) -> list[Subscription]:
        """All of them, new; as they are in the directory then."""
        rows = await self._log.reading(lambda connection: [self._row(connection, want) for want in wanted])
        topics: list[Prepared] = []
        hosts: dict[str, str] = {}
        plans: list[Alignment] = []
        for row, want in zip(rows, wanted, strict=True):
            if isinstance(want.topic, Topic):
                assert want.bound is not None
                topics.append(Prepared(row, want.topic, want.bound, want.since))
                if want.suggested is not None:
                    hosts[row.id] = want.suggested
            else:
                below, now = self._topics.below(want.topic.path), self._log.next_version()
                plans.append(
                    await self._log.scanning(
                        partial(self._planned, whole=row, below=below, now=now, new=True, since=want.since)
                    )
                )
        named = [row.id for row, want in zip(rows, wanted, strict=True) if want.id is not None]
        members = [item for plan in plans for item in plan.begin]
        await self._check_departures([*named, *(item.subscription.id for item in members)])
        if room is not None:
            # Early, too: before servers store thousands for nothing.
            more = len(members)
            await self._log.reading(lambda connection: room.check_members(connection, more))
        placed = await self._installer.place_in_slices([*topics, *members], hosts)
        topics, members = placed[: len(topics)], placed[len(topics) :]
        rest = iter(members)
        for plan in plans:
            plan.begin = [next(rest) for _ in plan.begin]

        def append(transaction: Transaction, stored: lifecycle.Stored) -> tuple[Counter[str], list[Replay]]:
            ended: Counter[str] = Counter()
            for row in rows:
                ended += lifecycle.end_expired(transaction, row.id)
            check_room(room, transaction.connection, wanted)
            if room is not None:
                room.check_members(transaction.connection, len(members))
            replays = lifecycle.begin(transaction, topics, stored)
            for plan in plans:
                directory.insert(
                    transaction.connection, plan.whole, Filter.parse(plan.whole.filter).attributes
                )
                change_feed.note(transaction, Kind.SUBSCRIPTION, plan.whole.id)
                replays += subtree.apply(transaction, plan, stored)[1]
            return ended, replays

        await self._installer.store_and(placed, append, asking=True)
        servers = {item.subscription.id: item.subscription.server for item in topics}
        return [replace(row, server=servers.get(row.id, "")) for row in rows]

    def _row(self, connection: Connection, want: Wanted) -> Subscription:
        """What the directory will have of it; of one to a topic without the server."""
        id, now, version = (
            want.id or new_id(want.topic.tenant),
            self._log.estimate(),
            self._log.next_version(),
        )
        return Subscription(
            id=id,
            version=subtree.first_version(connection, id, version)
            if want.id and self._log.noting
            else version,
            owner=want.owner,
            topic=want.topic.uid if isinstance(want.topic, Topic) else 0,
            filter=want.filter.to_json(),
            url=want.url,
            recipient=want.recipient,
            expires=want.expires,
            server="",
            created=now,
            location=want.location,
            ring=want.ring,
            subtree=want.topic.path if isinstance(want.topic, Subtree) else None,
        )

    async def change(self, subscription: str, want: Wanted, room: Room | None = None) -> Subscription:
        """Replace filter, sink and expiry: the old hold up to the record's offset, the new after it."""
        async with self.alone_with(subscription):
            found = await self.get(subscription)
            if not _is_to(found, want.topic):
                raise Conflict(
                    "a subscription stays on its topic; delete it and subscribe to the other one",
                    pointer="/topic",
                )
            changed = replace(
                found,
                version=max(found.version + 1, self._log.next_version()),
                filter=want.filter.to_json(),
                url=want.url,
                recipient=want.recipient,
                expires=want.expires,
                ring=want.ring,
            )
            if isinstance(want.topic, Topic):
                assert want.bound is not None
                await self._change(Prepared(changed, want.topic, want.bound), want, room)
            else:
                await self.align(changed, row_too=True, room=room, want=want)
            return changed

    async def _change(self, item: Prepared, want: Wanted, room: Room | None) -> None:
        changed = item.subscription

        def switch(transaction: Transaction) -> None:
            live(transaction, changed.id)
            check_room(room, transaction.connection, [want])
            check_topic(transaction, item)
            directory.replace(transaction.connection, changed, item.bound.attributes)
            transaction.append_control(changed.server, "change", versions=[(changed.id, changed.version)])
            change_feed.note_version(transaction, changed.id, stored[changed.server, item.topic.uid])

        try:
            stored = await self._installer.store([item], asking=True)
            await self._log.submit(switch)
        except EdnError:
            await self._installer.discard([item])
            raise
        self._placing.change(changed.server, Candidate(item.topic.uid, item.bound.rects(), changed.location))

    async def align(
        self,
        whole: Subscription,
        *,
        row_too: bool = False,
        room: Room | None = None,
        want: Wanted | None = None,
    ) -> bool:
        """Bring members in line with what they are part of; whether anything was to be done. Whoever calls it
        is alone with it. `row_too`: its own row is not so yet, and changes with them, to `want`. `room`: of
        the caller, if it is one that asks.
        """
        assert whole.subtree is not None
        below, now = self._topics.below(whole.subtree), self._log.next_version()
        plan = await self._log.scanning(partial(self._planned, whole=whole, below=below, now=now))
        if plan.empty and not row_too:
            return False
        more = len(plan.begin) - len(plan.end)
        if room is not None:
            await self._log.reading(lambda connection: room.check_members(connection, more))
        plan.begin = await self._installer.place_in_slices(plan.begin)

        def append(transaction: Transaction, stored: lifecycle.Stored) -> tuple[Counter[str], list[Replay]]:
            live(transaction, whole.id)
            if room is not None:
                room.check_members(transaction.connection, more)
            if want is not None:
                check_room(room, transaction.connection, [want])
            if row_too:
                attributes = Filter.parse(whole.filter).attributes
                directory.replace(transaction.connection, whole, attributes)
                change_feed.note(transaction, Kind.SUBSCRIPTION, whole.id)
            return subtree.apply(transaction, plan, stored)

        # What changes by itself is no occasion to ask: there may be nobody who would hear of a refusal.
        await self._installer.store_and(plan.begin, append, plan.change, asking=row_too)
        return True

    @staticmethod
    def _planned(
        connection: Connection,
        *,
        whole: Subscription,
        below: Sequence[Topic],
        now: int,
        new: bool = False,
        since: int | None = None,
    ) -> Alignment:
        """In a thread: many filters take a while to understand."""
        plan = subtree.align(connection, whole, below, now=now, new=new, since=since)
        for item in (*plan.begin, *plan.change):
            item.bound.rects()  # computed here, and found there
        return plan

    async def renew(self, subscription: str, expires: int | None) -> Subscription:
        def operation(transaction: Transaction) -> Subscription:
            found = live(transaction, subscription)
            by_server: dict[str, list[tuple[str, int | None]]] = {}
            for one in directory.family(transaction.connection, found):
                directory.renew(transaction.connection, one.id, expires)
                change_feed.note(transaction, Kind.SUBSCRIPTION, one.id, renewed=True)
                if one.subtree is None:
                    by_server.setdefault(one.server, []).append((one.id, expires))
            for server, expiries in by_server.items():
                transaction.append_control(server, "renew", expiries=expiries)
            return replace(found, expires=expires)

        async with self.alone_with(subscription):
            return await self._log.submit(operation)

    async def pause(self, subscription: str, paused: bool) -> Subscription:
        """From the record on notifications are kept, not sent; or what was kept and what follows is sent."""

        def operation(transaction: Transaction) -> Subscription:
            found = live(transaction, subscription)
            for one in directory.family(transaction.connection, found):
                subtree.pause(transaction, one.id, paused)
            return replace(found, paused=paused)

        async with self.alone_with(subscription):
            return await self._log.submit(operation)

    async def delete(self, subscription: str, end: str = CANCELLED) -> None:
        """`end`: why, for sinks that want to be told; empty if the subscriber asked for it there."""

        def operation(transaction: Transaction) -> Counter[str]:
            return lifecycle.end(transaction, [live(transaction, subscription)], end)

        async with self.alone_with(subscription):
            self._installer.ended(await self._log.submit(operation))

    async def sweep(self) -> int:
        """End what has expired; how many there were."""

        def operation(transaction: Transaction) -> Counter[str]:
            return self._end_expired(transaction, 1000)

        now = self._log.now()
        if not await self._log.reading(lambda connection: directory.expired(connection, now, 1)):
            return 0
        ended = await self._log.submit(operation)
        self._installer.ended(ended)
        return ended.total()

    async def step_clock(self, *, confirmed: bool = False, sweep: bool = True) -> float:
        """Make a suspect wall clock network time (`edn.runtime.clock`); return the seconds of the step.

        What has expired by then ends in the same transaction: a time that falls back revives nothing.
        """

        def operation(transaction: Transaction) -> tuple[float, Counter[str]]:
            ended = self._end_expired(transaction, -1) if sweep else Counter[str]()
            return clock.adopt(confirmed=confirmed), ended

        step, ended = await self._log.submit(operation)
        self._installer.ended(ended)
        await self._log.save_clock(clock.encode(clock.keeper.save()))
        return step

    def _end_expired(self, transaction: Transaction, most: int) -> Counter[str]:
        ended: Counter[str] = Counter()
        for name in directory.expired(transaction.connection, transaction.time, most):
            ended += lifecycle.end_expired(transaction, name)
        return ended


def _is_to(found: Subscription, place: Topic | Subtree) -> bool:
    """Whether a subscription is to this topic, or to this subtree."""
    if isinstance(place, Subtree):
        return found.subtree == place.path
    return found.subtree is None and found.topic == place.uid
