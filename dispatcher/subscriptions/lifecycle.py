"""Begins and ends subscriptions inside a transaction: rows of the directory, control records for servers.

Requests, new topics of a subtree and expiry all use these functions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dispatcher.servers.placement import Candidate
from dispatcher.store import directory, replays, topic_rows
from dispatcher.store.directory import Subscription
from dispatcher.store.interface import Kind, Transaction
from dispatcher.store.replays import Replay
from dispatcher.subscriptions.sequences.binding import Bound, attributes_on, further_attributes
from dispatcher.subscriptions.topics import Topic
from edn import protocol
from edn.errors import Conflict, NotFound, Unavailable
from edn.model import namespace

#: (server, topic) → answer of the server to a store request
Stored = Mapping[tuple[str, int], protocol.Stored]


class Raced(Unavailable):
    """Another dispatcher has changed the subscription during the request, which can be repeated."""

    def __init__(self, subscription: str) -> None:
        name = namespace.public_id(subscription)[:80]
        super().__init__(f'subscription "{name}" changed during the request: try again', retry_after=0.1)


@dataclass(frozen=True, slots=True)
class PendingVersion:
    """A new version of a subscription to a topic, before it is activated."""

    subscription: Subscription
    #: that of the first step, if it is a sequence
    topic: Topic
    bound: Bound
    #: network time of the first replayed event; None: no replay
    since: int | None = 0
    #: it comes from another server, which may still have notifications to deliver
    arriving: bool = False
    #: the other topics of a sequence
    further: tuple[Topic, ...] = ()

    @property
    def topics(self) -> tuple[Topic, ...]:
        return (self.topic, *self.further)

    @property
    def paths(self) -> list[str]:
        return [topic.path for topic in self.topics]

    def candidate(self) -> Candidate:
        """Return the version as placement sees it."""
        return Candidate(self.topic.uid, self.bound.rects(), self.subscription.location)


def store_item(one: Subscription, topic: Topic, arriving: bool) -> protocol.StoreItem:
    return protocol.StoreItem(
        one.id,
        one.version,
        topic.tenant,
        one.owner,
        one.filter,
        one.url,
        one.recipient,
        one.expires,
        one.ring,
        arriving,
        one.settings,
    )


def not_found(subscription: str) -> NotFound:
    return NotFound(f'subscription "{namespace.public_id(subscription)[:80]}" does not exist')


def find_live(transaction: Transaction, subscription: str) -> Subscription:
    """Return a subscription that has neither ended nor expired; raises `NotFound`."""
    found = directory.find_live(transaction.connection, subscription, transaction.time)
    if found is None:
        raise not_found(subscription)
    return found


def check_topic(transaction: Transaction, item: PendingVersion) -> None:
    """Raise if a topic was deleted, or lost an attribute of the filter, since the filter was bound."""
    for topic in item.topics:
        found = topic_rows.revision(transaction.connection, topic.uid)
        if found is None:
            raise NotFound(f'topic "{topic.name}" does not exist: it was deleted during the request')
        revision, types = found
        if revision == topic.revision:
            continue
        for name in attributes_on(item.bound, topic.uid):
            if types.get(name) != topic.schema.attributes[name]:
                raise Conflict(f'the schema of topic "{topic.name}" changed during the request: try again')


def begin(transaction: Transaction, items: Sequence[PendingVersion], stored: Stored) -> list[Replay]:
    """Insert subscriptions into the directory and activate them; return their replays."""
    by_server: dict[str, list[PendingVersion]] = defaultdict(list)
    paused: list[Subscription] = []
    for item in items:
        check_topic(transaction, item)
        one = item.subscription
        check_free(transaction, one.id)
        further = further_attributes(item.bound)
        directory.insert(transaction.connection, one, item.bound.attributes, further)
        answered = stored[one.server, item.topic.uid]
        transaction.note(Kind.SUBSCRIPTION, one.id, server=one.server, more=1, stored=answered)
        if one.paused:
            paused.append(one)
        by_server[one.server].append(item)
    replays: list[Replay] = []
    for server, together in by_server.items():
        replays += activate(transaction, server, together)
    for one in paused:
        transaction.append_control(one.server, "pause", ids=[one.id], revision=transaction.revision)
    return replays


def check_free(transaction: Transaction, id: str) -> None:
    """Raise `Raced` if another dispatcher has created a subscription with this id."""
    if transaction.shared and directory.find(transaction.connection, id) is not None:
        raise Raced(id)


def activate(transaction: Transaction, server: str, items: Sequence[PendingVersion]) -> list[Replay]:
    """Append the record that activates versions on a server; return the replays of the own log.

    Each log replays the retained events that it has.
    """
    named = {item.subscription.id: (item.subscription.id, item.subscription.version) for item in items}
    begun: list[Replay] = []
    for stream in transaction.streams:
        found: dict[tuple[int, int | None], bool] = {}
        for wanted in {(item.topic.uid, item.since) for item in items if item.since is not None}:
            found[wanted] = replays.has_available(transaction, stream, *wanted)
        behind = [item for item in items if found.get((item.topic.uid, item.since))]
        offset = transaction.append_to(
            stream,
            server,
            "activate",
            versions=list(named.values()),
            replays=[named[item.subscription.id] for item in behind],
        )
        for item in behind:
            replay = replay_of(item, offset, transaction.time, since=item.since)
            replays.insert(transaction, replay, stream)
            begun += [replay] if stream is transaction.own else []
    return begun


def replay_of(
    item: PendingVersion, offset: int, time: int, *, since: int | None, after: int | None = None
) -> Replay:
    one = item.subscription
    return Replay(one.id, one.version, one.server, item.topic.uid, one.filter, offset, time, since, after)


def end(transaction: Transaction, found: Iterable[Subscription], why: str = "") -> Counter[str]:
    """End subscriptions, subtree subscriptions with their members; return how many ended per server.

    `why`: the reason, for sinks that get a message at the end; only one member per subtree sends it.
    """
    by_server: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in found:
        reason = why
        for part in directory.family(transaction.connection, one):
            directory.delete(transaction.connection, part.id)
            if part.subtree is None:
                transaction.note(Kind.SUBSCRIPTION, part.id, server=part.server, more=-1)
                by_server[part.server, reason].append(part.id)
                reason = ""
    ended: Counter[str] = Counter()
    for (server, reason), ids in by_server.items():
        transaction.append_control(server, "deactivate", ids=ids, end=reason)
        ended[server] += len(ids)
    return ended


def end_expired(transaction: Transaction, subscription: str) -> Counter[str]:
    """End a subscription if it has expired, so that its id is free; return how many ended per server."""
    found = directory.find(transaction.connection, subscription)
    return end(transaction, [found] if found is not None and found.is_expired(transaction.time) else [])


def append_versions(
    transaction: Transaction, kind: protocol.Kind, subscriptions: Iterable[Subscription]
) -> None:
    """Append one control record per server with the versions of its subscriptions."""
    by_server: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for one in subscriptions:
        by_server[one.server].append((one.id, one.version))
    for server, versions in by_server.items():
        transaction.append_control(server, kind, versions=versions)
