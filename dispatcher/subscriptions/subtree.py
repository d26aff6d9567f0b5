"""Subtree subscriptions and their members: one row for the subscriber, one member per topic for the servers.

Theory of operation
-------------------
The directory has a row for the subtree subscription (the **parent**), without a topic and a server, and one
row per member. A member is an ordinary subscription: it is placed, stored, activated and migrated on its own.
Its id is derived from the ids of the parent and the topic (`edn.model.namespace`), and so is the URL of a
stream; it shares everything else with the parent.

A filter need not fit every topic. A topic that lacks an attribute of the filter, or has another type or
engine, is **left out**, and joins when its schema evolves. A filter that fits none of the existing topics is
refused as a mistake; in an empty subtree every filter is accepted.

**Alignment** begins, changes and ends members until there is one per topic that the filter fits, with the
filter, sink and expiry of the parent. It runs when a subscription is created or changed, and when a topic is
created or evolves. The plan is made outside the transaction, because servers must store new members; the
transaction checks that nothing has changed since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from dispatcher.store import directory, topic_rows
from dispatcher.store.directory import Subscription
from dispatcher.store.interface import Connection, Kind, Transaction
from dispatcher.store.replays import Replay
from dispatcher.subscriptions import lifecycle
from dispatcher.subscriptions.lifecycle import PendingVersion, Stored
from dispatcher.subscriptions.sinks import is_stream, stream_url
from dispatcher.subscriptions.topics import Topic, check_dialect
from edn import protocol
from edn.errors import EdnError, InvalidFilter, Unavailable
from edn.model import namespace
from edn.model.filter import BoundFilter, Filter
from edn.model.messages import quote


@dataclass(frozen=True, slots=True)
class Subtree:
    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def tenant(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class LeftOut:
    topic: Topic
    reason: str


def bind(filter: Filter, topic: Topic) -> BoundFilter:
    """Bind a filter to the schema of a topic; raises `InvalidFilter` or `TooLarge` if it does not fit."""
    check_dialect(filter, topic)
    return filter.bind(topic.schema)


def _bind_if_fits(filter: Filter, topic: Topic) -> BoundFilter | LeftOut:
    """Bind a filter to the schema of a topic, or return why it does not fit."""
    known = topic.schema.attributes
    missing = next((name for name in sorted(filter.attributes) if name not in known), None)
    if missing is not None:
        # Without `bind`, whose error looks for similar names: milliseconds in each of thousands of topics.
        return LeftOut(topic, f"{quote(missing)} is not an attribute of this topic")
    try:
        return bind(filter, topic)
    except EdnError as error:
        return LeftOut(topic, error.detail)


def sort_out(
    filter: Filter, topics: Iterable[Topic]
) -> tuple[list[tuple[Topic, BoundFilter]], list[LeftOut]]:
    fitting: list[tuple[Topic, BoundFilter]] = []
    others: list[LeftOut] = []
    for topic in topics:
        bound = _bind_if_fits(filter, topic)
        if isinstance(bound, LeftOut):
            others.append(bound)
        else:
            fitting.append((topic, bound))
    return fitting, others


def check_fits(filter: Filter, subtree: Subtree, topics: Sequence[Topic]) -> None:
    """Raise if there are topics and the filter fits none of them."""
    if not topics or any(not isinstance(_bind_if_fits(filter, topic), LeftOut) for topic in topics):
        return
    try:
        bind(filter, topics[0])
    except EdnError as error:
        raise InvalidFilter(
            f'the filter fits none of the topics in "{subtree.name}" ({len(topics)}); '
            f"{topics[0].name}: {error.detail}"
        ) from None


def covers(filter: Filter, found: Subscription, topics: Sequence[Topic]) -> bool:
    """Return whether a filter covers that of a subtree subscription on all topics of this one."""
    theirs = Filter.parse(found.filter)
    if filter == theirs or filter.to_json() is None:
        return True
    fitting, _ = sort_out(theirs, topics)
    try:
        return bool(fitting) and all(bind(filter, topic).covers(bound) for topic, bound in fitting)
    except EdnError:
        return False  # the filter does not fit one of the topics


@dataclass(slots=True)
class Alignment:
    """A plan that aligns the members with their subtree subscription."""

    parent: Subscription
    #: new members; without a server until they are placed
    begin: list[PendingVersion] = field(default_factory=list)
    #: members with a new version on the same server
    change: list[PendingVersion] = field(default_factory=list)
    end: list[Subscription] = field(default_factory=list)
    #: member → (version, server) at the time of the plan
    found: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: (uid, revision) of all topics of the subtree at the time of the plan
    topics: frozenset[tuple[int, int]] = frozenset()
    #: whether a member is paused and the parent is not, or the reverse
    uneven: bool = False

    @property
    def empty(self) -> bool:
        return not (self.begin or self.change or self.end or self.uneven)


def align(
    connection: Connection,
    parent: Subscription,
    topics: Sequence[Topic],
    *,
    now: int,
    new: bool = False,
    since: int | None = None,
) -> Alignment:
    """Plan the alignment with the topics of the subtree; `new`: there are no members yet."""
    members = {} if new else {one.topic: one for one in directory.members(connection, parent.id)}
    plan = Alignment(
        parent,
        found={one.id: (one.version, one.server) for one in members.values()},
        topics=frozenset((topic.uid, topic.revision) for topic in topics),
        uneven=any(one.paused != parent.paused for one in members.values()),
    )
    filter = Filter.parse(parent.filter)
    for topic in topics:
        member = members.pop(topic.uid, None)
        if member is not None and _member(parent, topic, member) == member:
            continue  # the filter still fits: a topic cannot lose an attribute that a filter uses
        bound = _bind_if_fits(filter, topic)
        if isinstance(bound, LeftOut):
            plan.end += [] if member is None else [member]
            continue
        bound.rects()  # cached, because this function runs in a thread
        if member is None:
            created = new_member(parent, topic, now)
            plan.begin.append(PendingVersion(created, topic, bound, since))
        else:
            changed = replace(_member(parent, topic, member), version=max(member.version + 1, now))
            plan.change.append(PendingVersion(changed, topic, bound))
    plan.end += members.values()
    return plan


def new_member(parent: Subscription, topic: Topic, version: int) -> Subscription:
    return replace(_member(parent, topic, parent), version=version, server="", created=version, serial=0)


def _member(parent: Subscription, topic: Topic, own: Subscription) -> Subscription:
    """Derive a member from its parent; `own` has the fields that they do not share."""
    id = namespace.member_id(parent.id, topic.uid)
    return replace(
        parent,
        id=id,
        version=own.version,
        topic=topic.uid,
        url=stream_url(id) if is_stream(parent.url) else parent.url,
        server=own.server,
        created=own.created,
        serial=own.serial,
        paused=own.paused,
        subtree=None,
    )


def apply(transaction: Transaction, plan: Alignment, stored: Stored) -> tuple[Counter[str], list[Replay]]:
    """Carry out a plan; return how many members ended per server, and the replays that begin."""
    _check(transaction, plan)
    ended = lifecycle.end(transaction, plan.end)
    for item in plan.change:
        lifecycle.check_topic(transaction, item)
        one = item.subscription
        directory.replace(transaction.connection, one, item.bound.attributes)
        answered = stored[one.server, item.topic.uid]
        transaction.note(Kind.SUBSCRIPTION, one.id, server=one.server, stored=answered)
    lifecycle.append_versions(transaction, "change", [item.subscription for item in plan.change])
    replays = lifecycle.begin(transaction, plan.begin, stored)
    for id in plan.found.keys() - {one.id for one in plan.end}:
        pause(transaction, id, plan.parent.paused)
    return ended, replays


def pause(transaction: Transaction, id: str, paused: bool) -> None:
    """Pause or resume one row: a subscription to a topic, a member, or a parent without its members."""
    found = directory.find(transaction.connection, id)
    if found is None or found.paused == paused:
        return
    directory.pause(transaction.connection, id, paused)
    if found.subtree is None:
        kind: protocol.Kind = "pause" if paused else "resume"
        transaction.append_control(found.server, kind, ids=[id], revision=transaction.revision)


def _check(transaction: Transaction, plan: Alignment) -> None:
    assert plan.parent.subtree is not None
    topics = topic_rows.revisions_below(transaction.connection, plan.parent.subtree)
    members = directory.members(transaction.connection, plan.parent.id)
    if plan.topics != topics or {one.id: (one.version, one.server) for one in members} != plan.found:
        raise Unavailable(
            f'topics or members of "{plan.parent.subtree}" changed during the request: try again',
            retry_after=0.1,
        )
