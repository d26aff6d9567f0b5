"""How subscriptions begin and end inside a transaction: the directory's rows and the servers' records.

Whatever makes one begin or end goes through here: a call, a topic that joins a subtree, an expiry, another
dispatcher's change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dispatcher.store import change_feed, directory, replays, topic_rows
from dispatcher.store.change_feed import Kind
from dispatcher.store.directory import Subscription
from dispatcher.store.interface import Transaction
from dispatcher.store.replays import Replay
from dispatcher.subscriptions.topics import Topic
from edn import protocol
from edn.errors import Conflict, NotFound
from edn.model import namespace
from edn.model.filter import BoundFilter

#: what servers answered to a store, by server and topic
Stored = Mapping[tuple[str, int], protocol.Stored]
NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Prepared:
    """A subscription to a topic that is about to begin, or to change."""

    subscription: Subscription
    topic: Topic
    bound: BoundFilter
    #: None: it begins now; else with what is available of that time or later
    since: int | None = 0
    #: it comes from another server, which may still have something to deliver
    arriving: bool = False

    def item(self) -> protocol.StoreItem:
        """Return the message that stores it on its server."""
        subscription = self.subscription
        return protocol.StoreItem(
            subscription.id,
            subscription.version,
            self.topic.tenant,
            subscription.owner,
            subscription.filter,
            subscription.url,
            subscription.recipient,
            subscription.expires,
            subscription.ring,
            self.arriving,
        )


def live(transaction: Transaction, subscription: str) -> Subscription:
    """A subscription that has not ended, nor expired by now; raises `NotFound`."""
    found = directory.find(transaction.connection, subscription)
    if found is None or (found.expires is not None and found.expires <= transaction.time):
        raise NotFound(f'no subscription "{namespace.public_id(subscription)[:80]}"')
    return found


def check_topic(transaction: Transaction, item: Prepared) -> None:
    """The topic may have changed since the filter was bound; what the filter uses must still be there."""
    found = topic_rows.revision(transaction.connection, item.topic.uid)
    if found is None:
        raise NotFound(f'no topic "{item.topic.name}": it was deleted meanwhile')
    revision, types = found
    if revision == item.topic.revision:
        return
    for name in item.bound.attributes:
        if types.get(name) != item.topic.schema.attributes[name]:
            raise Conflict(f'the schema of topic "{item.topic.name}" changed meanwhile: try again')


def begin(transaction: Transaction, items: Sequence[Prepared], stored: Stored) -> list[Replay]:
    """Write them to the directory and activate them; the replays that this begins."""
    by_server: dict[str, list[Prepared]] = {}
    paused: list[tuple[Subscription, int]] = []
    for item in items:
        check_topic(transaction, item)
        one = item.subscription
        directory.insert(transaction.connection, one, item.bound.attributes)
        revision = change_feed.note(
            transaction,
            Kind.SUBSCRIPTION,
            one.id,
            stored=stored[one.server, item.topic.uid],
            since=item.since,
        )
        if one.paused:
            paused.append((one, revision))
        by_server.setdefault(one.server, []).append(item)
    replays: list[Replay] = []
    for server, together in by_server.items():
        replays += activate(transaction, server, together)
    for one, revision in paused:
        transaction.append_control(one.server, "pause", ids=[one.id], revision=revision)
    return replays


def activate(
    transaction: Transaction, server: str, items: Sequence[Prepared], displaced: Mapping[str, int] = NONE
) -> list[Replay]:
    """Append the record that activates them; the replays that it begins. `displaced`: those with the id and
    filter of another that had begun at that offset, and told what came after it.
    """
    named = {item.subscription.id: (item.subscription.id, item.subscription.version) for item in items}
    behind = [
        item
        for item in items
        if item.since is not None and replays.has_available(transaction, item.topic.uid, item.since)
    ]
    offset = transaction.append_control(
        server,
        "activate",
        versions=list(named.values()),
        replays=[named[item.subscription.id] for item in behind],
    )
    begun = [
        replay_of(item, displaced.get(item.subscription.id, offset), transaction.time, since=item.since)
        for item in behind
    ]
    for replay in begun:
        replays.insert(transaction, replay)
    return begun


def replay_of(
    item: Prepared, offset: int, time: int, *, since: int | None, after: int | None = None
) -> Replay:
    """What a subscription that begins at that offset is yet to be told; `since` and `after` as there."""
    one = item.subscription
    return Replay(one.id, one.version, one.server, item.topic.uid, one.filter, offset, time, since, after)


def end(transaction: Transaction, found: Iterable[Subscription], why: str = "") -> Counter[str]:
    """End subscriptions, those to subtrees with all their members; how many ended on which server.

    `why`: for sinks that want to be told. Of members one tells them, for all.
    """
    by_server: dict[tuple[str, str], list[str]] = {}
    for one in found:
        told = why
        for part in directory.family(transaction.connection, one):
            directory.delete(transaction.connection, part.id)
            change_feed.note_end(transaction, part)
            if part.subtree is None:
                by_server.setdefault((part.server, told), []).append(part.id)
                told = ""
    ended: Counter[str] = Counter()
    for (server, told), ids in by_server.items():
        transaction.append_control(server, "deactivate", ids=ids, end=told)
        ended[server] += len(ids)
    return ended


def end_expired(transaction: Transaction, subscription: str) -> Counter[str]:
    """Make room for a new subscription under the id of one that has expired and was not swept yet; on which
    servers it was.
    """
    found = directory.find(transaction.connection, subscription)
    if found is None or found.expires is None or found.expires > transaction.time:
        return Counter()
    return end(transaction, [found])
