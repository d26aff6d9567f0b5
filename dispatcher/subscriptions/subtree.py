"""A subscription to a subtree and its members: one for its subscriber, one a topic for the servers.

Theory of operation ------------------- The directory has a row of the whole, without a topic and a server,
and a row a member, which is a subscription like any other: placed, stored, activated, moved, told of to other
dispatchers by itself. Its id is derived from those of the whole and the topic (`edn.model.namespace`), and so
is its address, if it is a stream; everything else it has from the whole.

A filter need not fit every topic: one that lacks an attribute that it uses, or has a type or an engine that
it cannot be for, is **left out**, and joins when its schema has evolved. A filter that fits none of the
topics that there are is refused as a mistake; where there are none yet, it waits for them.

A whole is **aligned** with its topics: members begin, change or end, until there is one a topic that the
filter fits, with the filter, the sink and the expiry of the whole. Subscribing and changing are that, a topic
that comes or evolves, and what is left to be done after two dispatchers did not see each other. The plan is
made outside the transaction, because servers must store what begins; inside it is checked that nothing has
changed since.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from dispatcher.store import change_feed, directory, topic_rows
from dispatcher.store.change_feed import Kind
from dispatcher.store.directory import Subscription
from dispatcher.store.interface import Connection, Transaction
from dispatcher.subscriptions import lifecycle
from dispatcher.subscriptions.lifecycle import Prepared, Stored
from dispatcher.subscriptions.replay import Replay
from dispatcher.subscriptions.stream_address import is_stream, stream_address
from dispatcher.subscriptions.topics import Topic, check_dialect
from edn import protocol
from edn.errors import EdnError, InvalidFilter, Unavailable
from edn.model import namespace
from edn.model.filter import BoundFilter, Filter
from edn.model.messages import quote


@dataclass(frozen=True, slots=True)
class Subtree:
    #: as `Topic.path`
    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def tenant(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A topic that a filter does not fit."""

    topic: Topic
    reason: str


def bind(filter: Filter, topic: Topic) -> BoundFilter:
    """Raises `InvalidFilter` or `TooLarge` if it does not fit."""
    check_dialect(filter, topic)
    return filter.bind(topic.schema)


def _lacking(filter: Filter, topic: Topic) -> str | None:
    """Say which attribute of a filter a topic lacks, or None.

    Binding would look for similar names, which takes milliseconds in each of thousands of wide topics.
    """
    known = topic.schema.attributes
    missing = next((name for name in sorted(filter.attributes) if name not in known), None)
    return None if missing is None else f"{quote(missing)} is no attribute of this topic"


def sort_out(
    filter: Filter, topics: Iterable[Topic]
) -> tuple[list[tuple[Topic, BoundFilter]], list[LeftOut]]:
    """The topics that a filter fits, and the others."""
    fitting: list[tuple[Topic, BoundFilter]] = []
    others: list[LeftOut] = []
    for topic in topics:
        lacking = _lacking(filter, topic)
        if lacking is not None:
            others.append(LeftOut(topic, lacking))
            continue
        try:
            fitting.append((topic, bind(filter, topic)))
        except EdnError as error:
            others.append(LeftOut(topic, error.detail))
    return fitting, others


def check_fits(filter: Filter, subtree: Subtree, topics: Sequence[Topic]) -> None:
    """Raise if there are topics and the filter fits none of them."""
    for topic in topics:
        if _lacking(filter, topic) is None:
            with contextlib.suppress(EdnError):
                bind(filter, topic)
                return
    if not topics:
        return
    many = f"none of the {len(topics)} topics" if len(topics) > 1 else "not the one topic that is"
    try:
        bind(filter, topics[0])
    except EdnError as error:
        raise InvalidFilter(f'it fits {many} in "{subtree.name}"; {topics[0].name}: {error.detail}') from None


def covers(filter: Filter, found: Subscription, topics: Sequence[Topic]) -> bool:
    """Whether a filter covers that of a subscription to a subtree, on all topics that this one has."""
    theirs = Filter.parse(found.filter)
    if filter == theirs or filter.to_json() is None:
        return True
    fitting, _ = sort_out(theirs, topics)
    try:
        return bool(fitting) and all(bind(filter, topic).covers(bound) for topic, bound in fitting)
    except EdnError:
        return False  # it does not fit one of them


# -- aligning ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Alignment:
    """The steps that bring the members in line with their subtree subscription."""

    whole: Subscription
    #: without a server, until they are placed
    begin: list[Prepared] = field(default_factory=list)
    #: another version each, on the same server
    change: list[Prepared] = field(default_factory=list)
    end: list[Subscription] = field(default_factory=list)
    #: members as they were found: (version, server)
    found: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: (uid, revision) of all topics of the subtree, as they were
    seen: frozenset[tuple[int, int]] = frozenset()
    #: some are paused and should not be, or the reverse
    uneven: bool = False

    @property
    def empty(self) -> bool:
        return not (self.begin or self.change or self.end or self.uneven)


def align(
    connection: Connection,
    whole: Subscription,
    topics: Sequence[Topic],
    *,
    now: int,
    new: bool = False,
    since: int | None = None,
) -> Alignment:
    """Plan it; `topics` are those of the subtree. `new`: it has no members yet. `since`: as for `Prepared`,
    of what begins.
    """
    members = {} if new else {one.topic: one for one in directory.members(connection, whole.id)}
    plan = Alignment(
        whole,
        found={one.id: (one.version, one.server) for one in members.values()},
        seen=frozenset((topic.uid, topic.revision) for topic in topics),
        uneven=any(one.paused != whole.paused for one in members.values()),
    )
    filter = Filter.parse(whole.filter)
    for topic in topics:
        member = members.pop(topic.uid, None)
        if member is not None and _member(whole, topic, member) == member:
            continue  # it fits: what its filter uses cannot be taken away from the topic
        try:
            bound = bind(filter, topic) if _lacking(filter, topic) is None else None
        except EdnError:
            bound = None
        if bound is None:
            plan.end += [] if member is None else [member]
            continue
        if member is None:
            plan.begin.append(Prepared(new_member(connection, whole, topic, now), topic, bound, since))
        else:
            changed = replace(_member(whole, topic, member), version=max(member.version + 1, now))
            plan.change.append(Prepared(changed, topic, bound))
    plan.end += members.values()
    return plan


def new_member(connection: Connection, whole: Subscription, topic: Topic, now: int) -> Subscription:
    """Prepare a member that has no server yet."""
    version = first_version(connection, namespace.member_id(whole.id, topic.uid), now)
    return replace(_member(whole, topic, whole), version=version, server="", created=now, serial=0)


def _member(whole: Subscription, topic: Topic, own: Subscription) -> Subscription:
    """Derive a member from its subtree subscription; `own` provides the fields of its own."""
    id = namespace.member_id(whole.id, topic.uid)
    return replace(
        whole,
        id=id,
        version=own.version,
        topic=topic.uid,
        url=stream_address(id) if is_stream(whole.url) else whole.url,
        server=own.server,
        created=own.created,
        serial=own.serial,
        paused=own.paused,
        subtree=None,
    )


def first_version(connection: Connection, id: str, now: int) -> int:
    """Above all that an id ever had, though another dispatcher's clock may have been ahead."""
    former = change_feed.find(connection, Kind.SUBSCRIPTION, id)
    return now if former is None or former.version is None else max(now, former.version + 1)


def apply(transaction: Transaction, plan: Alignment, stored: Stored) -> tuple[Counter[str], list[Replay]]:
    """Do it; how many ended on which server, and the replays that begin."""
    _check(transaction, plan)
    ended = lifecycle.end(transaction, plan.end)
    versions: dict[str, list[tuple[str, int]]] = {}
    for item in plan.change:
        lifecycle.check_topic(transaction, item)
        one = item.subscription
        directory.replace(transaction.connection, one, item.bound.attributes)
        versions.setdefault(one.server, []).append((one.id, one.version))
        change_feed.note_version(transaction, one.id, stored[one.server, item.topic.uid])
    for server, changed in versions.items():
        transaction.append_control(server, "change", versions=changed)
    replays = lifecycle.begin(transaction, plan.begin, stored)
    for id in plan.found.keys() - {one.id for one in plan.end}:
        pause(transaction, id, plan.whole.paused)
    return ended, replays


def pause(transaction: Transaction, id: str, paused: bool) -> None:
    """Of a subscription to a topic, or of the row of a whole: pause or resume it, unless it is so already."""
    found = directory.find(transaction.connection, id)
    if found is None or found.paused == paused:
        return
    directory.pause(transaction.connection, id, paused)
    revision = change_feed.note(transaction, Kind.SUBSCRIPTION, id)
    if found.subtree is None:
        kind: protocol.Kind = "pause" if paused else "resume"
        transaction.append_control(found.server, kind, ids=[id], revision=revision)


def _check(transaction: Transaction, plan: Alignment) -> None:
    """Raise if topics or members are others by now: the plan was made for those."""
    assert plan.whole.subtree is not None
    seen = topic_rows.revisions_below(transaction.connection, plan.whole.subtree)
    members = directory.members(transaction.connection, plan.whole.id)
    if plan.seen != seen or {one.id: (one.version, one.server) for one in members} != plan.found:
        raise Unavailable(
            f'topics or members of "{plan.whole.subtree}" changed meanwhile: try again', retry_after=0.1
        )
