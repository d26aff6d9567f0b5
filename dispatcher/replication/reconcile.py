"""What another dispatcher has changed becomes part of this one's log, topics and directory.

A page tells what things are now (`edn.protocol.PeerPage`). Of each that is newer than what is here, by its
revision, the difference is appended to this log as the records that the servers would have got if the change
had been made here: *activate*, *change*, *deactivate*, *renew*, *pause*, *resume*, *rotate*, *join*. So the
log stays the one way in which servers learn of anything, and it does not matter whether a page brings what
was changed a moment ago or while this dispatcher was away.

The routing table is widened before anything is appended: by what the server answered when it stored the
filter, or, where that is not known, to everything until a new summary is there.

Of two topics of one name, made on two sides that did not see each other, the one that was changed last stays;
the other ends with its subscriptions.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.placement import Placer
from dispatcher.servers.registration import Registration, introduce
from dispatcher.servers.summaries import Summaries
from dispatcher.store import api_keys, change_feed, directory, replays, signing_keys, topic_rows
from dispatcher.store.change_feed import Kind
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection, Transaction
from dispatcher.store.topic_rows import Binding
from dispatcher.subscriptions import lifecycle, signing_rings, topics
from dispatcher.subscriptions.lifecycle import PendingVersion
from dispatcher.subscriptions.replay import Replay
from dispatcher.subscriptions.topics import Topic, Topics
from edn import protocol
from edn.errors import EdnError
from edn.formats.webhooks import KeyRing
from edn.model import namespace
from edn.model.filter import BoundFilter, Filter
from edn.model.rect import Rects

logger = structlog.get_logger()

#: a page of so many filters is understood on the event loop; more are by a thread
FEW = 4


@dataclass(slots=True)
class _Outcome:
    """What memory must learn after the commit."""

    servers: list[protocol.ServerState] = field(default_factory=list)
    topics: list[Topic] = field(default_factory=list)
    topics_gone: list[int] = field(default_factory=list)
    begun: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    #: id → offset at which one of this id and filter began here that the new one displaces
    displaced: dict[str, int] = field(default_factory=dict)
    replays: list[Replay] = field(default_factory=list)
    keys: bool = False
    bindings: bool = False
    #: a topic, or a subscription to a subtree, came or changed: others may have to follow
    names: bool = False


class Merger:
    """One page after the other; event loop only."""

    def __init__(
        self,
        log: Log,
        table: RoutingTable,
        topics: Topics,
        registration: Registration,
        placing: Placer,
        bindings: Bindings,
        summaries: Summaries,
        on_replay: Callable[[Replay], None],
        on_keys: Callable[[], Awaitable[None]] | None = None,
        on_names: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_keys` hears that API keys came or went; `on_names` that topics came, or subscriptions to
        subtrees, or members of those.
        """
        self._log = log
        self._table = table
        self._topics = topics
        self._registration = registration
        self._placing = placing
        self._bindings = bindings
        self._summaries = summaries
        self._on_replay = on_replay
        self._on_keys = on_keys
        self._on_names = on_names

    async def cursor(self, log: str) -> int:
        """Up to which place another dispatcher's changes are in this log."""
        return await self._log.reading(lambda connection: change_feed.position(connection, log))

    async def merge(self, page: protocol.PeerPage) -> None:
        """Durably; raises `Unavailable` when the log cannot be written."""
        for server in page.servers:
            self._table.add(server.id)
        schemas = {state.uid: _topic(state) for state in page.topics}
        fresh = await self._log.reading(
            lambda connection: [state for state in page.subscriptions if _is_news(connection, state)]
        )
        if len(fresh) > FEW:
            bound = await asyncio.to_thread(_bind, fresh, schemas)
        else:
            bound = _bind(fresh, schemas)
        self._widen(fresh, bound)

        def operation(transaction: Transaction) -> _Outcome:
            outcome = _apply(transaction, page, schemas, bound)
            change_feed.put_position(transaction, page.log, page.upto)
            return outcome

        outcome = await self._log.submit(operation)
        for server in outcome.servers:
            self._registration.add_remote(server, self._log.now())
        for topic in outcome.topics:
            self._topics.remember(topic)
        for uid in outcome.topics_gone:
            self._topics.forget(uid)
            self._summaries.forget_topic(uid)
        for name, count in outcome.begun.items():
            self._placing.add_load(name, count)
        for name, count in outcome.ended.items():
            self._placing.remove_load(name, count)
        for replay in outcome.replays:
            self._on_replay(replay)
        if outcome.keys and self._on_keys is not None:
            await self._on_keys()
        if outcome.bindings:
            await self._bindings.reload()
        if outcome.names:
            self._on_names()

    def _widen(self, fresh: list[protocol.SubscriptionState], bound: dict[str, BoundFilter]) -> None:
        doubted = set()
        together: dict[tuple[str, int, int, int], list[Rects]] = {}
        for state in fresh:
            if state.id not in bound:
                continue
            if state.epoch is None or state.seq is None:
                doubted.add(state.server)
            else:
                place = (state.server, state.topic, state.epoch, state.seq)
                together.setdefault(place, []).append(bound[state.id].rects())
        for (server, topic, epoch, seq), rects in together.items():
            self._summaries.widen(server, topic, rects, protocol.Stored(epoch, seq))
        for server in doubted:
            self._summaries.distrust(server)


def _is_news(connection: Connection, state: protocol.SubscriptionState) -> bool:
    """Whether its filter must be understood: it is not here, or is here with another one."""
    found = directory.find(connection, state.id)
    return state.subtree is None and (found is None or found.version != state.version)


def _topic(state: protocol.TopicState) -> Topic:
    schema = topic_rows.stored_schema(state.columns, state.attributes, state.closed)
    return Topic(
        state.uid,
        state.name,
        state.revision,
        schema,
        state.engine,
        state.created,
        state.availability,
        state.chosen,
    )


def _bind(fresh: list[protocol.SubscriptionState], schemas: dict[int, Topic]) -> dict[str, BoundFilter]:
    bound = {}
    for state in fresh:
        try:
            bound[state.id] = Filter.parse(state.filter).bind(schemas[state.topic].schema)
        except (EdnError, KeyError) as error:
            # Its topic is gone meanwhile, or has lost what it names: a later page tells of its end.
            logger.warning("a subscription is left out", subscription=state.id, reason=str(error))
    return bound


def _apply(
    transaction: Transaction,
    page: protocol.PeerPage,
    schemas: dict[int, Topic],
    bound: dict[str, BoundFilter],
) -> _Outcome:
    outcome = _Outcome()
    outcome.servers = [state for state in page.servers if introduce(transaction, state)]
    _take_ends(transaction, page, outcome)
    _take_keys_and_bindings(transaction, page, outcome)
    for topic in page.topics:
        _take_topic(transaction, topic, schemas[topic.uid], outcome)
    for ring in page.rings:
        _take_ring(transaction, ring)
    _take_subscriptions(transaction, page, schemas, bound, outcome)
    return outcome


def _take_ends(transaction: Transaction, page: protocol.PeerPage, outcome: _Outcome) -> None:
    for end in page.gone:
        if end.kind == Kind.SUBSCRIPTION:
            _end_subscription(transaction, end, outcome)
        elif end.kind == Kind.TOPIC:
            _end_topic(transaction, end, outcome)
        elif end.kind == Kind.KEY and _newer(transaction, Kind.KEY, end.name, end.revision):
            outcome.keys |= api_keys.delete(transaction, end.name)
            change_feed.note(transaction, Kind.KEY, end.name, revision=end.revision, gone=end.time)
        elif end.kind == Kind.BINDING and _newer(transaction, Kind.BINDING, end.name, end.revision):
            outcome.bindings |= topic_rows.delete_binding(transaction, end.name)
            change_feed.note(transaction, Kind.BINDING, end.name, revision=end.revision, gone=end.time)


def _take_keys_and_bindings(transaction: Transaction, page: protocol.PeerPage, outcome: _Outcome) -> None:
    for key in page.keys:
        if _newer(transaction, Kind.KEY, key.id, key.revision):
            api_keys.take(transaction, key)
            change_feed.note(transaction, Kind.KEY, key.id, revision=key.revision)
            outcome.keys = True
    for binding in page.bindings:
        if _newer(transaction, Kind.BINDING, binding.name, binding.revision):
            servers = None if binding.servers is None else tuple(binding.servers)
            taken = Binding(binding.name, servers, binding.engine, binding.created)
            topic_rows.insert_binding(transaction, taken)
            change_feed.note(transaction, Kind.BINDING, binding.name, revision=binding.revision)
            outcome.bindings = True


def _take_subscriptions(
    transaction: Transaction,
    page: protocol.PeerPage,
    schemas: dict[int, Topic],
    bound: dict[str, BoundFilter],
    outcome: _Outcome,
) -> None:
    """Those that begin are activated together, and those that have moved end and begin side by side."""
    begun: list[tuple[PendingVersion, protocol.SubscriptionState]] = []
    moved: list[tuple[Subscription, protocol.SubscriptionState]] = []
    departed: dict[str, list[tuple[str, int]]] = {}
    for state in page.subscriptions:
        if not _newer(transaction, Kind.SUBSCRIPTION, state.id, state.revision):
            continue
        outcome.names |= state.subtree is not None or namespace.is_member(state.id)
        if state.subtree is not None:
            _take_whole(transaction, state, outcome)
        else:
            before = directory.find(transaction.connection, state.id)
            new = _take_subscription(transaction, state, schemas, bound, outcome, moved)
            if new is not None:
                begun.append((new, state))
            # It has ended there in this log, too: only what every log has ended is forgotten by its server.
            hosts = {state.former}
            if before is not None and before.created == state.created:
                hosts.add(before.server)
            for server in hosts - {None, state.server}:
                departed.setdefault(str(server), []).append((state.id, state.version))
    _append_moves(transaction, moved, departed)
    for server in dict.fromkeys(new.subscription.server for new, _ in begun):
        items = [new for new, _ in begun if new.subscription.server == server]
        outcome.replays += lifecycle.activate(transaction, server, items, outcome.displaced)
        outcome.begun[server] += len(items)
    for new, state in begun:
        _bring_up(transaction, new.subscription, state, renewed=state.renewed, paused=False)


def _append_moves(
    transaction: Transaction,
    moved: list[tuple[Subscription, protocol.SubscriptionState]],
    departed: dict[str, list[tuple[str, int]]],
) -> None:
    """What has moved ends and begins at one place of the log; then what else is to be said of it."""
    for server, versions in departed.items():
        transaction.append_control(server, "move", versions=versions)
    arrived: dict[str, list[tuple[str, int]]] = {}
    for taken, _ in moved:
        arrived.setdefault(taken.server, []).append((taken.id, taken.version))
    for server, versions in arrived.items():
        transaction.append_control(server, "move", versions=versions)
    for taken, state in moved:
        _bring_up(transaction, taken, state, renewed=state.renewed, paused=False)


def _newer(transaction: Transaction, kind: Kind, name: str, revision: int) -> bool:
    known = change_feed.find(transaction.connection, kind, name)
    return known is None or known.revision < revision


# -- one kind each ------------------------------------------------------------------------------------------


def _end_subscription(transaction: Transaction, end: protocol.Tombstone, outcome: _Outcome) -> None:
    if not _newer(transaction, Kind.SUBSCRIPTION, end.name, end.revision):
        return
    found = directory.find(transaction.connection, end.name)
    server = end.server if found is None else found.server
    if found is not None:
        directory.delete(transaction.connection, end.name)
        outcome.ended[found.server] += 1
    outcome.names |= not server or namespace.is_member(end.name)
    if server:  # not of a whole, whose members end by themselves
        if found is None:
            _tell_missed(transaction, end, outcome)
        # One that came and went while this dispatcher was away has an end in this log, too: only what every
        # log has ended is forgotten by its server.
        transaction.append_control(server, "deactivate", ids=[end.name])
    change_feed.note(
        transaction,
        Kind.SUBSCRIPTION,
        end.name,
        revision=end.revision,
        gone=end.time,
        version=end.version,
        server=end.server,
        since=end.since,
        wanted=None if end.since is None else json.dumps([end.topic, end.filter]),
    )


def _tell_missed(transaction: Transaction, end: protocol.Tombstone, outcome: _Outcome) -> None:
    """A subscription came and went while this dispatcher was away. What was available of this log belongs to
    it all the same: it begins here for that, and ends at once.
    """
    if end.since is None or end.topic is None or end.version is None or end.server is None:
        return
    last = replays.last_record(transaction.connection, end.topic, end.time)
    if last is None or not replays.has_available(transaction, end.topic, end.since):
        return
    version = (end.name, end.version)
    transaction.append_control(end.server, "activate", versions=[version], replays=[version])
    replay = Replay(*version, end.server, end.topic, end.filter, last, transaction.time, end.since)
    replays.insert(transaction, replay)
    outcome.replays.append(replay)


def _end_topic(transaction: Transaction, end: protocol.Tombstone, outcome: _Outcome) -> None:
    if not _newer(transaction, Kind.TOPIC, end.name, end.revision):
        return
    outcome.ended.update(topics.remove(transaction, int(end.name)))
    outcome.topics_gone.append(int(end.name))
    change_feed.note(transaction, Kind.TOPIC, end.name, revision=end.revision, gone=end.time)


def _take_topic(
    transaction: Transaction, state: protocol.TopicState, topic: Topic, outcome: _Outcome
) -> None:
    name = str(state.uid)
    if not _newer(transaction, Kind.TOPIC, name, state.changed):
        return
    rival = topic_rows.find_uid(transaction.connection, state.name)
    if rival is not None and rival != state.uid:
        if not _newer(transaction, Kind.TOPIC, str(rival), state.changed):
            return
        outcome.ended.update(topics.remove(transaction, rival))
        outcome.topics_gone.append(rival)
    topic_rows.insert(transaction, topic)
    change_feed.note(transaction, Kind.TOPIC, name, revision=state.changed)
    outcome.topics.append(topic)
    outcome.names = True


def _take_ring(transaction: Transaction, state: protocol.RingState) -> None:
    known = signing_keys.read(transaction.connection, [state.id])
    if known and known[0].version >= state.version:
        return
    signing_keys.take(transaction, state)
    change_feed.note(transaction, Kind.RING, state.id)
    if known:
        ring = KeyRing(state.id, state.current, state.previous, state.until, state.version)
        signing_rings.announce(transaction, ring)


def _take_whole(transaction: Transaction, state: protocol.SubscriptionState, outcome: _Outcome) -> None:
    """The row of a subscription to a subtree; its members come by themselves."""
    found = directory.find(transaction.connection, state.id)
    if found is not None and found.subtree is None:
        _displace(transaction, found, outcome)
    directory.delete(transaction.connection, state.id)
    directory.insert(transaction.connection, _row(state), frozenset(state.attributes))
    change_feed.note(transaction, Kind.SUBSCRIPTION, state.id, revision=state.revision, whole=True)


def _take_subscription(
    transaction: Transaction,
    state: protocol.SubscriptionState,
    schemas: dict[int, Topic],
    bound: dict[str, BoundFilter],
    outcome: _Outcome,
    moved: list[tuple[Subscription, protocol.SubscriptionState]],
) -> PendingVersion | None:
    """Write it to the directory and append what that means, but for one that begins: that is given back, and
    for one that is on another server now: that is among the `moved`.
    """
    connection = transaction.connection
    found = directory.find(connection, state.id)
    if not topic_rows.exists(connection, state.topic):
        return None
    if state.id not in bound and (found is None or found.version != state.version):
        return None
    taken = _row(state)
    attributes = frozenset(state.attributes)
    known = state.epoch is not None and state.seq is not None
    change_feed.note(
        transaction,
        Kind.SUBSCRIPTION,
        state.id,
        revision=state.revision,
        stored=protocol.Stored(state.epoch or 0, state.seq or 0) if known else None,
        since=state.since,
        renewed=state.renewed,
        former=state.former,
        whole=True,
    )
    if found is not None and found.created == taken.created and found.server != taken.server:
        directory.replace(connection, taken, attributes)
        directory.move(connection, taken.id, taken.server, taken.version)
        directory.pause(connection, taken.id, taken.paused)
        outcome.ended[found.server] += 1
        outcome.begun[taken.server] += 1
        moved.append((taken, state))
        return None
    if found is not None and found.created != taken.created:
        left = _displace(transaction, found, outcome)
        if left is not None and (left.topic, left.filter) == (taken.topic, taken.filter):
            outcome.displaced[taken.id] = left.upto
        found = None
    if found is None:
        directory.insert(connection, taken, attributes)
        return PendingVersion(taken, schemas[state.topic], bound[state.id], state.since)
    renewed = found.expires != taken.expires
    if found.version != taken.version:
        directory.replace(connection, taken, attributes)
        transaction.append_control(taken.server, "change", versions=[(taken.id, taken.version)])
        renewed = state.renewed
    _bring_up(transaction, taken, state, renewed=renewed, paused=found.paused)
    return None


def _displace(transaction: Transaction, found: Subscription, outcome: _Outcome) -> Replay | None:
    """Another subscription has this id now; what this one had yet to be told of its past."""
    directory.delete(transaction.connection, found.id)
    if found.subtree is not None:
        return None
    transaction.append_control(found.server, "deactivate", ids=[found.id])
    outcome.ended[found.server] += 1
    return replays.displace(transaction, found.id, found.version)


def _bring_up(
    transaction: Transaction,
    taken: Subscription,
    state: protocol.SubscriptionState,
    *,
    renewed: bool,
    paused: bool,
) -> None:
    """Expiry and pause of a version that is active; `paused`: what it was before."""
    if renewed:
        directory.renew(transaction.connection, taken.id, taken.expires)
        transaction.append_control(taken.server, "renew", expiries=[(taken.id, taken.expires)])
    if paused != taken.paused:
        directory.pause(transaction.connection, taken.id, taken.paused)
        kind: protocol.Kind = "pause" if taken.paused else "resume"
        transaction.append_control(taken.server, kind, ids=[taken.id], revision=state.revision)


def _row(state: protocol.SubscriptionState) -> Subscription:
    return Subscription(
        id=state.id,
        version=state.version,
        owner=state.owner,
        topic=state.topic,
        filter=state.filter,
        url=state.url,
        recipient=state.recipient,
        expires=state.expires,
        server=state.server,
        created=state.created,
        serial=state.serial,
        location=None if state.location is None else tuple(state.location),
        ring=state.ring,
        paused=state.paused,
        subtree=state.subtree,
    )
