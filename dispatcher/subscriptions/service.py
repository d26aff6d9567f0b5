"""Creates, changes, renews, pauses and ends subscriptions.

The order of steps makes it safe: the server stores the filter, inactive; the routing table is widened
(`installer`); one transaction appends *activate* and writes the directory; then the request is answered. All
later events follow *activate* in the stream of that server. Requests for the same id run one after the other.

A subtree subscription is a row and its members (`subtree`); a change affects all of them in one transaction.
Such requests, and requests that create or delete a topic, run one after the other per tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dispatcher.auth.quotas import Room
from dispatcher.servers.placement import Placer
from dispatcher.store import directory, repartitions
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection, Kind, Transaction
from dispatcher.store.replays import Replay
from dispatcher.subscriptions import lifecycle, subtree
from dispatcher.subscriptions.installer import SubscriptionInstaller
from dispatcher.subscriptions.keyed_lock import KeyedLock
from dispatcher.subscriptions.lifecycle import PendingVersion, Raced, check_free, check_topic, find_live
from dispatcher.subscriptions.sequences.binding import (
    Bound,
    bind_stored,
    further_attributes,
    further_topics,
)
from dispatcher.subscriptions.sinks import encode_settings
from dispatcher.subscriptions.subtree import Alignment, Subtree
from dispatcher.subscriptions.topics import Topic, Topics, path_of
from edn.errors import Conflict, EdnError, Unavailable
from edn.formats.sink_settings import Credentials, SinkSettings
from edn.formats.soap.eventing import CANCELLED
from edn.model import namespace
from edn.model.filter import Filter
from edn.model.sequence import BoundSequence, is_sequence
from edn.model.sequence import Sequence as SequenceForm
from edn.runtime import clock

#: subscriptions that are compared, and ended, at once
COVERED_PAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRequest:
    """A validated request for one subscription."""

    #: key (`edn.model.namespace`); None: it is generated
    id: str | None
    owner: str
    topic: Topic | Subtree
    filter: Filter | SequenceForm
    #: filter bound to the topic's schema; None for a subtree
    bound: Bound | None
    url: str
    recipient: str | None
    expires: int | None
    location: tuple[float, ...] | None = None
    #: server that another server suggests
    suggested: str | None = None
    #: network time of the first replayed event; None: no replay
    since: int | None = 0
    secret: str | None = field(default=None, repr=False)
    #: id of the key ring; `signing_rings` assigns it
    ring: str = ""
    #: settings of the sink; `sink_credentials` assigns their id
    settings: SinkSettings = field(default_factory=SinkSettings)
    credentials: Credentials | None = None
    #: whether a new subscription begins paused
    is_paused: bool = False
    #: the other topics of a sequence
    further: tuple[Topic, ...] = ()


def check_room(connection: Connection, room: Room | None, requests: Sequence[SubscriptionRequest]) -> None:
    """Raise `Overloaded` if a quota is exceeded; a subscription that is replaced does not count."""
    if room is not None:
        room.check_subscriptions(
            connection,
            [request.filter.predicates for request in requests],
            [request.id for request in requests if request.id is not None],
        )


def new_id(tenant: str) -> str:
    return namespace.key_of(tenant, f"sub_{secrets.token_urlsafe(15)}")


class Subscriptions:
    def __init__(self, log: Log, topics: Topics, placing: Placer, installer: SubscriptionInstaller) -> None:
        self._log = log
        self._topics = topics
        self._placing = placing
        self._installer = installer
        self.lock = KeyedLock()

    async def get(self, subscription: str) -> Subscription:
        found = await self._log.reading(directory.find_live, subscription, self._log.now())
        if found is None:
            raise lifecycle.not_found(subscription)
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
        serials: Sequence[int] | None = None,
    ) -> tuple[list[Subscription], str | None]:
        """Return a page of a topic, a subtree, an owner or a tenant, or of all; see `directory.page`."""
        topics, below = self._scope(topic, tenant)
        # A search reads all subscriptions.
        read = self._log.reading if search is None and serials is None else self._log.scanning
        return await read(
            directory.page,
            now=self._log.now(),
            limit=limit,
            cursor=cursor,
            topics=topics,
            below=below,
            owner=owner,
            search=search,
            members=members,
            serials=serials,
        )

    def topics_in(self, topic: Topic | Subtree | None, tenant: str | None) -> set[int] | None:
        """Return the uids of a topic, a subtree or a tenant; None for all."""
        uids, _ = self._scope(topic, tenant)
        return None if uids is None else set(uids)

    def _scope(
        self, topic: Topic | Subtree | None, tenant: str | None
    ) -> tuple[list[int] | None, str | None]:
        if isinstance(topic, Topic):
            return [topic.uid], None
        if topic is None and tenant is None:
            return None, None
        below = path_of(tenant or "", namespace.ALL) if topic is None else topic.path
        return [one.uid for one in self._topics.below(below)], below

    async def left_out(self, parent: Subscription) -> list[subtree.LeftOut]:
        """Return the topics of a subtree subscription that its filter does not fit."""
        assert parent.subtree is not None
        below = self._topics.below(parent.subtree)
        _, others = await asyncio.to_thread(subtree.sort_out, Filter.parse(parent.filter), below)
        return others

    # -- locks ------------------------------------------------------------------------------------------

    def lock_tenant(self, tenant: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Lock the topics of a tenant, and the members of its subtree subscriptions."""
        # No id contains a slash. Locks of ids are acquired after this one.
        return self.lock.hold([f"/{tenant}"])

    @contextlib.asynccontextmanager
    async def lock_family(self, subscription: str) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            names = [subscription]
            found = await self._log.reading(directory.find, subscription)
            if found is not None and found.subtree is not None:
                await stack.enter_async_context(self.lock_tenant(Subtree(found.subtree).tenant))
                names += [one.id for one in await self._log.reading(directory.members, subscription)]
            await stack.enter_async_context(self.lock.hold(names))
            yield

    # -- changing ---------------------------------------------------------------------------------------

    async def create(
        self, requests: Sequence[SubscriptionRequest], room: Room | None = None
    ) -> list[tuple[Subscription, bool]]:
        """Create all subscriptions or none; return each, and whether it is new or the request is a repeat."""
        named = [request.id for request in requests if request.id is not None]
        repeated = [id for id, count in Counter(named).items() if count > 1]
        if repeated:
            raise Conflict(f'id "{namespace.public_id(min(repeated))}" must be unique within a request')
        async with contextlib.AsyncExitStack() as stack:
            for tenant in sorted({one.topic.tenant for one in requests if isinstance(one.topic, Subtree)}):
                await stack.enter_async_context(self.lock_tenant(tenant))
            await stack.enter_async_context(self.lock.hold(named))
            try:
                return await self._create(requests, room)
            except Raced:
                return await self._create(requests, room)

    async def _create(
        self, requests: Sequence[SubscriptionRequest], room: Room | None
    ) -> list[tuple[Subscription, bool]]:
        if any(isinstance(request.topic, Subtree) for request in requests):
            await self._log.refresh()  # for the topics of the subtree
        existing = await self._log.reading(
            lambda connection: [self._find_existing(connection, request) for request in requests]
        )
        new = [request for request, found in zip(requests, existing, strict=True) if found is None]
        created = iter(await self._begin(new, room) if new else [])
        return [(found, False) if found else (next(created), True) for found in existing]

    def _find_existing(self, connection: Connection, request: SubscriptionRequest) -> Subscription | None:
        """Return the subscription that an earlier request like this one has created."""
        if request.id is None:
            return None
        found = directory.find_live(connection, request.id, self._log.now())
        if found is None:
            return None
        same = (
            found.owner == request.owner
            and _is_to(found, request.topic)
            and found.filter == request.filter.to_json()
            and found.url == request.url
            and found.recipient == request.recipient
            and (request.secret is None or found.ring == request.ring)
            and found.settings == encode_settings(request.settings)
        )
        if not same:
            raise Conflict(
                f'subscription "{namespace.public_id(request.id)}" exists with another owner, topic, filter '
                "or sink; change it instead (`edn subscription change`)",
                pointer="/id",
            )
        return found

    async def _check_migrations(self, names: Sequence[str]) -> None:
        """Raise if a server still buffers notifications of an ended subscription with one of these ids."""
        row = await self._log.reading(repartitions.find_buffered, names)
        if row is not None:
            raise Unavailable(
                f'subscription "{namespace.public_id(row[0])}" ended during its migration from {row[1]}; '
                "its id can be used again after the migration",
                retry_after=1,
            )

    async def _begin(self, requests: Sequence[SubscriptionRequest], room: Room | None) -> list[Subscription]:
        """Place, store and activate new subscriptions; return their rows of the directory."""
        rows = [self._row(request) for request in requests]
        topics: list[PendingVersion] = []
        suggested: dict[str, str] = {}
        plans: list[Alignment] = []
        for row, request in zip(rows, requests, strict=True):
            if isinstance(request.topic, Topic):
                assert request.bound is not None
                topics.append(
                    PendingVersion(row, request.topic, request.bound, request.since, further=request.further)
                )
                if request.suggested is not None:
                    suggested[row.id] = request.suggested
            else:
                plans.append(await self._plan(row, new=True, since=request.since))
        named = [row.id for row, request in zip(rows, requests, strict=True) if request.id is not None]
        members = [item for plan in plans for item in plan.begin]
        await self._check_migrations([*named, *(item.subscription.id for item in members)])
        if room is not None:
            # Also before servers store thousands of members in vain.
            await self._log.reading(room.check_members, len(members))
        placed = await self._installer.place([*topics, *members], suggested)
        topics, members = placed[: len(topics)], placed[len(topics) :]
        rest = iter(members)
        for plan in plans:
            plan.begin = [next(rest) for _ in plan.begin]

        def commit(transaction: Transaction, stored: lifecycle.Stored) -> tuple[Counter[str], list[Replay]]:
            ended: Counter[str] = Counter()
            for row in rows:
                ended += lifecycle.end_expired(transaction, row.id)
            check_room(transaction.connection, room, requests)
            if room is not None:
                room.check_members(transaction.connection, len(members))
            replays = lifecycle.begin(transaction, topics, stored)
            for plan in plans:
                attributes = Filter.parse(plan.parent.filter).attributes
                check_free(transaction, plan.parent.id)
                directory.insert(transaction.connection, plan.parent, attributes)
                replays += subtree.apply(transaction, plan, stored)[1]
            return ended, replays

        await self._installer.install(placed, commit, ask_consent=True)
        servers = {item.subscription.id: item.subscription.server for item in topics}
        return [replace(row, server=servers.get(row.id, "")) for row in rows]

    def _row(self, request: SubscriptionRequest) -> Subscription:
        return Subscription(
            id=request.id or new_id(request.topic.tenant),
            version=self._log.next_version(),
            owner=request.owner,
            topic=request.topic.uid if isinstance(request.topic, Topic) else 0,
            filter=request.filter.to_json(),
            url=request.url,
            recipient=request.recipient,
            expires=request.expires,
            server="",
            created=self._log.estimate(),
            location=request.location,
            ring=request.ring,
            subtree=request.topic.path if isinstance(request.topic, Subtree) else None,
            settings=encode_settings(request.settings),
            paused=request.is_paused,
        )

    async def change(
        self, subscription: str, request: SubscriptionRequest, room: Room | None = None
    ) -> Subscription:
        """Replace filter, sink and expiry; the new version matches from the offset of its record on."""
        async with self.lock_family(subscription):
            found = await self.get(subscription)
            if not _is_to(found, request.topic):
                raise Conflict(
                    "the topic of a subscription cannot change; delete it and subscribe to the other topic",
                    pointer="/topic",
                )
            changed = replace(
                found,
                version=max(found.version + 1, self._log.next_version()),
                filter=request.filter.to_json(),
                url=request.url,
                recipient=request.recipient,
                expires=request.expires,
                ring=request.ring,
                settings=encode_settings(request.settings),
            )
            if isinstance(request.topic, Topic):
                assert request.bound is not None
                item = PendingVersion(changed, request.topic, request.bound, further=request.further)
                self._installer.check_host(item)
                await self._change(found, item, request, room)
            else:
                await self.align(changed, room, request, before=found)
            return changed

    async def _change(
        self, before: Subscription, item: PendingVersion, request: SubscriptionRequest, room: Room | None
    ) -> None:
        changed = item.subscription

        def switch(transaction: Transaction) -> None:
            _check_unchanged(transaction, before)
            check_room(transaction.connection, room, [request])
            check_topic(transaction, item)
            further = further_attributes(item.bound)
            directory.replace(transaction.connection, changed, item.bound.attributes, further)
            transaction.append_control(changed.server, "change", versions=[(changed.id, changed.version)])
            answered = stored[changed.server, item.topic.uid]
            transaction.note(Kind.SUBSCRIPTION, changed.id, server=changed.server, stored=answered)

        try:
            stored = await self._installer.store([item], ask_consent=True)
            await self._log.submit(switch)
        except EdnError:
            await self._installer.discard([item])
            raise
        self._placing.change(changed.server, item.candidate())

    async def align(
        self,
        parent: Subscription,
        room: Room | None = None,
        request: SubscriptionRequest | None = None,
        before: Subscription | None = None,
    ) -> bool:
        """Align members with their parent, and commit its changed row with them; return whether they changed.

        The caller must hold the lock of the family. `request`: the change of the parent, which was `before`.
        """
        await self._log.refresh()  # for the topics of the subtree
        plan = await self._plan(parent)
        if plan.empty and request is None:
            return False
        more = len(plan.begin) - len(plan.end)
        if room is not None:
            await self._log.reading(room.check_members, more)
        plan.begin = await self._installer.place(plan.begin)

        def commit(transaction: Transaction, stored: lifecycle.Stored) -> tuple[Counter[str], list[Replay]]:
            _check_unchanged(transaction, before or parent)
            if room is not None:
                room.check_members(transaction.connection, more)
            if request is not None:
                check_room(transaction.connection, room, [request])
                assert isinstance(request.filter, Filter)
                directory.replace(transaction.connection, parent, request.filter.attributes)
            return subtree.apply(transaction, plan, stored)

        # Without a request nobody would see that a sink refuses consent.
        await self._installer.install(plan.begin, commit, plan.change, ask_consent=request is not None)
        return True

    async def _plan(self, parent: Subscription, *, new: bool = False, since: int | None = None) -> Alignment:
        """Plan the alignment of a subtree subscription; in a thread, because binding many filters is slow."""
        assert parent.subtree is not None
        below, now = self._topics.below(parent.subtree), self._log.next_version()
        return await self._log.scanning(subtree.align, parent, below, now=now, new=new, since=since)

    async def renew(self, subscription: str, expires: int | None) -> Subscription:
        def operation(transaction: Transaction) -> Subscription:
            found = find_live(transaction, subscription)
            by_server: dict[str, list[tuple[str, int | None]]] = defaultdict(list)
            for one in directory.family(transaction.connection, found):
                directory.renew(transaction.connection, one.id, expires)
                if one.subtree is None:
                    by_server[one.server].append((one.id, expires))
            for server, expiries in by_server.items():
                transaction.append_control(server, "renew", expiries=expiries)
            return replace(found, expires=expires)

        async with self.lock_family(subscription):
            return await self._log.submit(operation)

    async def pause(self, subscription: str, paused: bool) -> Subscription:
        """Pause or resume the delivery of a subscription, from the offset of the record on."""

        def operation(transaction: Transaction) -> Subscription:
            found = find_live(transaction, subscription)
            for one in directory.family(transaction.connection, found):
                subtree.pause(transaction, one.id, paused)
            return replace(found, paused=paused)

        async with self.lock_family(subscription):
            return await self._log.submit(operation)

    async def delete(self, subscription: str, end: str = CANCELLED) -> None:
        """End a subscription; `end`: the reason, for sinks that get a message at the end, empty for none."""

        def operation(transaction: Transaction) -> Counter[str]:
            return lifecycle.end(transaction, [find_live(transaction, subscription)], end)

        async with self.lock_family(subscription):
            self._installer.release_capacity(await self._log.submit(operation))

    async def delete_covered(
        self, topic: Topic | Subtree, owner: str, filter: Filter, left: list[str] | None = None
    ) -> list[str]:
        """End the subscriptions of an owner that a filter on a topic or subtree covers; return their keys.

        A subtree subscription is covered if the filter covers it on all its topics. A subscription that
        changes after the comparison is not ended. Sequences stay; `left` gets their keys.
        """

        def is_covered(one: Subscription) -> bool:
            if left is not None and is_sequence(one.filter):
                left.append(one.id)
            return self._is_covered(topic, filter, one)

        return await self._delete_if(topic, owner, is_covered)

    async def delete_covered_sequences(self, topic: Topic, owner: str, bound: BoundSequence) -> list[str]:
        """End the sequences of an owner that a sequence covers; return their keys."""
        return await self._delete_if(topic, owner, lambda one: self._is_covered_sequence(bound, one))

    async def _delete_if(
        self, topic: Topic | Subtree, owner: str, is_covered: Callable[[Subscription], bool]
    ) -> list[str]:
        ended: list[str] = []
        cursor: str | None = None
        while True:
            page, cursor = await self.page(limit=COVERED_PAGE, cursor=cursor, topic=topic, owner=owner)
            # In a thread, because comparing filters may be slow.
            covered = await asyncio.to_thread(lambda page: [one for one in page if is_covered(one)], page)
            if covered:
                unchanged, by_server = await self._log.submit(partial(_end_unchanged, compared=covered))
                self._installer.release_capacity(by_server)
                ended += unchanged
            if cursor is None:
                return ended

    def _is_covered_sequence(self, bound: BoundSequence, one: Subscription) -> bool:
        own = self._topics.by_uid(one.topic)
        if own is None or not is_sequence(one.filter):
            return False
        try:
            theirs = bind_stored(one.filter, own, further_topics(one.filter, self._topics.by_uid))
        except EdnError:
            return False
        return isinstance(theirs, BoundSequence) and bound.covers(theirs)

    def _is_covered(self, topic: Topic | Subtree, filter: Filter, one: Subscription) -> bool:
        if is_sequence(one.filter):
            return False
        if one.subtree is not None:
            return namespace.includes(topic.path, one.subtree) and subtree.covers(
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

    async def end_expired(self) -> int:
        """End up to 1000 expired subscriptions; return how many."""
        if not await self._log.reading(directory.expired, self._log.now(), 1):
            return 0
        ended = await self._log.submit(lambda transaction: self._end_expired(transaction, 1000))
        self._installer.release_capacity(ended)
        return ended.total()

    async def step_clock(self, *, confirmed: bool = False) -> float:
        """Set network time to a suspect wall clock (`edn.runtime.clock`); return the seconds of the step.

        Expired subscriptions end in the same transaction, so that a step back does not revive them.
        """

        def operation(transaction: Transaction) -> tuple[float, Counter[str]]:
            ended = self._end_expired(transaction, None)
            return clock.adopt(confirmed=confirmed), ended

        step, ended = await self._log.submit(operation)
        self._installer.release_capacity(ended)
        await self._log.save_clock(clock.encode(clock.keeper.save()))
        return step

    def _end_expired(self, transaction: Transaction, limit: int | None) -> Counter[str]:
        ended: Counter[str] = Counter()
        for name in directory.expired(transaction.connection, transaction.time, limit):
            ended += lifecycle.end_expired(transaction, name)
        return ended


def _check_unchanged(transaction: Transaction, before: Subscription) -> None:
    """Raise unless a subscription is alive and has the version that the request is based on."""
    if find_live(transaction, before.id).version != before.version:
        raise Raced(before.id)


def _end_unchanged(
    transaction: Transaction, compared: Sequence[Subscription]
) -> tuple[list[str], Counter[str]]:
    """End subscriptions that still have the compared version; return their keys, and the ends per server."""
    found = [(directory.find(transaction.connection, one.id), one.version) for one in compared]
    same = [one for one, version in found if one is not None and one.version == version]
    return [one.id for one in same], lifecycle.end(transaction, same, CANCELLED)


def _is_to(found: Subscription, topic: Topic | Subtree) -> bool:
    if isinstance(topic, Subtree):
        return found.subtree == topic.path
    return found.subtree is None and found.topic == topic.uid
