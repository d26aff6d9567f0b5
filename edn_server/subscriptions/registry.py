"""Holds the hosted subscriptions in memory: arrays by version, a matcher and maximal rectangles per topic.

A version has a small **number**, which is reused once nothing names the version. The hot path reads numpy
columns by number: the interval in each log (`LogState.since`, `.until`; NEVER is "not yet"), the expiry
there, and the address. Each log has its own intervals and expiries, because logs are read independently: a
record of one log must not change the matches in another.

A version has one **entry** in its topic's matcher per rectangle; entries map to numbers.

Only the writer's thread changes the registry. Other threads may read `fragments`: the fragment of a number
stays while an outbox row names the number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from edn.formats.webhooks import KeyRing
from edn.model.filter import BoundFilter, Filter
from edn.model.namespace import is_member, public_id, subscription_of
from edn.runtime.ownership import any_thread, owned
from edn_server.policies import UsageLimits
from edn_server.storage.addresses import settings_of
from edn_server.storage.replays import Source
from edn_server.storage.versions import NEVER, StoredSink, StoredVersion
from edn_server.subscriptions.counters import VersionCounters
from edn_server.subscriptions.sequences import LiveSequence, live_sequence
from edn_server.subscriptions.topic_index import Flags, Int32s, Int64s, Topic, grown

#: remembered ends of versions that are not stored: far more than a dispatcher has in flight
MOST_DISCARDED = 100_000
#: queued addresses of ended versions; rows of further ones wait until delivery gives up
MOST_ENDED = 1_000_000


class LogState:
    """The state of one log, and the intervals of versions in it."""

    def __init__(self, name: str, incarnation: int, expires: Int64s) -> None:
        """`expires`: the stored expiries; this log's renewals change its copy."""
        capacity = len(expires)
        self.name = name
        self.incarnation = incarnation
        #: None before the first frame
        self.cursor: int | None = None
        #: offset of the join record, once applied
        self.joined: int | None = None
        #: whether its dispatcher has another log
        self.retired = False
        self.since: Int64s = np.full(capacity, NEVER, dtype=np.int64)
        self.until: Int64s = np.full(capacity, NEVER, dtype=np.int64)
        self.expires: Int64s = expires.copy()

    def grow(self, more: int) -> None:
        self.since, self.until, self.expires = (
            grown(column, more, NEVER) for column in (self.since, self.until, self.expires)
        )


@dataclass(slots=True)
class LiveVersion:
    """The rarely used fields of a version; the columns of `SubscriptionRegistry` hold the others."""

    id: str
    version: int
    topic: int
    filter: str
    width: int
    entries: list[int]
    bound: BoundFilter | None = field(default=None)


@owned("writer")
class SubscriptionRegistry:
    def __init__(self) -> None:
        self.topics: dict[int, Topic] = {}
        #: topics that may have no version left
        self.idle: set[int] = set()
        self.logs: dict[str, LogState] = {}
        #: logs that have ended beside others; their frames are repeats
        self.ended_logs: set[str] = set()
        #: byte limits of tenants
        self.limits = UsageLimits()
        #: committed store requests
        self.seq = 0
        #: the sequences among the living versions, by number
        self.sequences: dict[int, LiveSequence] = {}
        #: sequences whose candidates may wait: they settle, or have migrated
        self.delayed: set[int] = set()
        #: serial of the newest candidate of a sequence
        self.arrivals = 0
        #: living versions by number, and their numbers by subscription
        self.versions: dict[int, LiveVersion] = {}
        self.numbers: dict[str, list[int]] = {}
        #: subtree subscription → its members on this server
        self.members: dict[str, dict[str, None]] = {}
        #: JSON of a match by number; None where the number is free
        self.fragments: list[bytes | None] = []
        #: addresses by address number (see `storage.addresses`), and living versions per address
        self.addresses: list[str] = []
        self._address_number: dict[str, int] = {}
        self._address_uses: list[int] = []
        self._address_free: list[int] = []
        self._free: list[int] = []
        self._top = 0
        capacity = 1024
        self.address: Int32s = np.zeros(capacity, dtype=np.int32)
        #: expiry as stored; matching uses `LogState.expires`
        self.expires: Int64s = np.full(capacity, NEVER, dtype=np.int64)
        self.incarnation: Int64s = np.zeros(capacity, dtype=np.int64)
        #: uid of the topic until the number is free again; 0 is none
        self._topic_of: Int64s = np.zeros(capacity, dtype=np.int64)
        self.living: Flags = np.zeros(capacity, dtype=np.bool_)
        #: whether notifications are held back by a pause, a replay or a migration
        self.held: Flags = np.zeros(capacity, dtype=np.bool_)
        #: paused subscription → {log: revision of the pause}
        self.paused: dict[str, dict[str, int]] = {}
        #: number → sources of its unfinished history
        self.replaying: dict[int, set[Source]] = {}
        #: index into `log_names` of the log whose dispatcher stored the version
        self.stored_by: Int32s = np.zeros(capacity, dtype=np.int32)
        self.log_names: list[str] = []
        #: entries removed since the last snapshot of the summaries
        self.shrinkable = 0
        #: key rings by id
        self.rings: dict[str, KeyRing] = {}
        #: settings of sinks by id, and numbers of addresses whose notifications are rows of their own
        self.sinks: dict[str, StoredSink] = {}
        self.unordered: set[int] = set()
        #: counters by number
        self.counters = VersionCounters()
        #: numbers that a migration ended, and subscriptions that migrated since the start
        self.moved: set[int] = set()
        self.migrated: set[str] = set()
        #: addresses of ended versions, for another thread: they may have rows without a living recipient
        self.ended_addresses: deque[str] = deque(maxlen=MOST_ENDED)
        #: (log, subscription, version) that ended before they were stored (see `store`), oldest first
        self.discarded: dict[tuple[str, str, int], None] = {}

    # -- numbers ----------------------------------------------------------------------------------------

    def allocate_number(self) -> int:
        if self._free:
            return self._free.pop()
        self._top += 1
        return self._top - 1

    def free_number(self, number: int) -> None:
        """Frees the number of a version that nothing names."""
        if number < len(self.fragments):
            self.fragments[number] = None
            self.counters.forget(number)
        self.moved.discard(number)
        self._free.append(number)
        if number >= len(self._topic_of):
            return
        topic = self.topics.get(int(self._topic_of[number]))
        self._topic_of[number] = 0
        if topic is not None:
            self._leave_topic(topic)

    def _leave_topic(self, topic: Topic) -> None:
        topic.versions -= 1
        if topic.versions == 0:
            self.idle.add(topic.uid)

    def reserve(self, used: set[int]) -> None:
        """Marks numbers as used, after a restart."""
        self._top = max(used, default=-1) + 1
        self._free = [number for number in range(self._top) if number not in used]

    def log(self, name: str, incarnation: int = 0) -> LogState:
        if name not in self.logs:
            self.logs[name] = LogState(name, incarnation, self.expires)
        return self.logs[name]

    def log_number(self, name: str) -> int:
        if name not in self.log_names:
            self.log_names.append(name)
        return self.log_names.index(name)

    def discard(self, log: str, versions: Iterable[tuple[str, int]]) -> None:
        """Remembers versions that ended before they were stored; evicts the oldest beyond the limit."""
        for id, version in versions:
            self.discarded[log, id, version] = None
        while len(self.discarded) > MOST_DISCARDED:
            del self.discarded[next(iter(self.discarded))]

    # -- topics -----------------------------------------------------------------------------------------

    def add_topic(
        self, uid: int, tenant: str, name: str, columns: Sequence[tuple[str, str]], engine: str
    ) -> None:
        """Adds a topic, or new columns of a known one."""
        if uid in self.topics:
            self.topics[uid].evolve(columns)
        else:
            self.topics[uid] = Topic(uid, tenant, name, columns, engine)
            self.idle.add(uid)  # until it has a version

    def unused_topics(self) -> list[int]:
        """Returns the topics without versions, ended versions included."""
        self.idle = {uid for uid in self.idle if uid in self.topics and not self.topics[uid].versions}
        return sorted(self.idle)

    def forget_topics(self, uids: Iterable[int]) -> None:
        """Forgets topics deleted from the database, unless a version was added meanwhile."""
        for uid in uids:
            topic = self.topics.get(uid)
            if topic is not None and not topic.versions:
                del self.topics[uid]
                self.counters.forget_topic(uid)
            self.idle.discard(uid)

    # -- versions ---------------------------------------------------------------------------------------

    def set_fragment(self, number: int, id: str, recipient: str | None, topic: int) -> None:
        """Composes the JSON of a match of a version, and pins its topic."""
        self._ensure(number + 1)
        if topic in self.topics and not self._topic_of[number]:
            self._topic_of[number] = topic
            self.topics[topic].versions += 1
        while len(self.fragments) <= number:
            self.fragments.append(None)
        match = {"subscription": public_id(id)}
        if recipient is not None:
            match["recipient"] = recipient
        self.fragments[number] = msgspec.json.encode(match)

    def find(self, id: str, version: int) -> int | None:
        """Returns the number of a living version."""
        return next((n for n in self.numbers.get(id, ()) if self.versions[n].version == version), None)

    @any_thread
    def members_of(self, subscription: str) -> list[str]:
        """Returns the members of a subtree subscription on this server, or a plain subscription itself."""
        if subscription in self.numbers:
            return [subscription]
        return list(self.members.get(subscription, ()))

    def insert(self, new: Sequence[StoredVersion]) -> None:
        """Adds stored versions; they match nothing before a log activates them."""
        if not new:
            return
        self._ensure(max(version.number for version in new) + 1)
        by_topic: dict[int, list[StoredVersion]] = {}
        for version in new:
            number = version.number
            self.set_fragment(number, version.id, version.recipient, version.topic)
            self.address[number] = self._use_address(version.address)
            self.expires[number] = version.expires
            self.incarnation[number] = version.incarnation
            self.stored_by[number] = self.log_number(version.log)
            self.living[number] = True
            self.held[number] = False
            for log in self.logs.values():
                log.since[number] = log.until[number] = NEVER
                log.expires[number] = version.expires
            self.numbers.setdefault(version.id, []).append(number)
            if is_member(version.id):
                self.members.setdefault(subscription_of(version.id), {})[version.id] = None
            self.migrated.discard(version.id)
            if self.paused or self.replaying:
                self.mark_held([version.id])
            if version.steps:
                self._insert_sequence(version)
            else:
                by_topic.setdefault(version.topic, []).append(version)
        for uid, versions in by_topic.items():
            self._insert_entries(self.topics[uid], versions)

    def _insert_sequence(self, version: StoredVersion) -> None:
        """Adds the entries of a sequence to the matchers of its topics, which it pins."""
        live = LiveSequence(live_sequence(version.filter), {}, {})
        for step in version.steps:
            topic, rects = self.topics[step.topic], step.rects
            if topic.uid not in live.entries and topic.uid != version.topic:
                topic.versions += 1
            entries = topic.allocate_entries(len(rects))
            lo = np.full((len(rects), topic.width), -np.inf)
            hi = np.full((len(rects), topic.width), np.inf)
            lo[:, : rects.width], hi[:, : rects.width] = rects.lo, rects.hi
            topic.number[entries] = version.number
            topic.exact[entries] = rects.exact
            topic.multi_rect[entries] = False
            topic.set_roles(entries, step.role)
            topic.insert(entries, lo, hi)
            live.entries.setdefault(topic.uid, []).extend(entries)
            live.widths[topic.uid] = rects.width
        self.sequences[version.number] = live
        if live.sequence.settle:
            self.delayed.add(version.number)
        width = live.widths[version.topic]
        self.versions[version.number] = LiveVersion(
            version.id, version.version, version.topic, version.filter, width, []
        )

    def _insert_entries(self, topic: Topic, new: list[StoredVersion]) -> None:
        rows = sum(len(version.rects.exact) for version in new)
        entries = topic.allocate_entries(rows)
        lo = np.full((rows, topic.width), -np.inf)
        hi = np.full((rows, topic.width), np.inf)
        at = 0
        for version in new:
            rects = version.rects
            own = entries[at : at + len(rects.exact)]
            lo[at : at + len(own), : rects.width] = rects.lo
            hi[at : at + len(own), : rects.width] = rects.hi
            topic.number[own] = version.number
            topic.exact[own] = rects.exact
            topic.multi_rect[own] = len(own) > 1
            topic.set_roles(own, -1)
            at += len(own)
            self.versions[version.number] = LiveVersion(
                version.id, version.version, topic.uid, version.filter, rects.width, own
            )
        if rows:
            topic.insert(entries, lo, hi)

    def remove(self, numbers: Iterable[int]) -> None:
        """Removes versions that every live log has ended."""
        by_topic: dict[int, list[int]] = {}
        for number in numbers:
            version = self.versions.pop(number)
            self.living[number] = self.held[number] = False
            self.ended_addresses.append(self.addresses[self.address[number]])
            self._leave_address(int(self.address[number]))
            others = self.numbers[version.id]
            others.remove(number)
            if others:
                self.counters.transfer(number, others[-1])
            else:
                del self.numbers[version.id]
                self._leave_subtree(version.id)
            by_topic.setdefault(version.topic, []).extend(version.entries)
            live = self.sequences.pop(number, None)
            self.delayed.discard(number)
            for uid, steps in {} if live is None else live.entries.items():
                by_topic.setdefault(uid, []).extend(steps)
                if uid != version.topic:
                    self._leave_topic(self.topics[uid])
        for uid, entries in by_topic.items():
            if entries:
                self.topics[uid].delete(entries)
            self.shrinkable += len(entries)

    def _leave_subtree(self, id: str) -> None:
        others = self.members.get(subscription_of(id))
        if others is not None:
            others.pop(id, None)
            if not others:
                del self.members[subscription_of(id)]

    def mark_held(self, subscriptions: Iterable[str]) -> None:
        """Updates `held` after a change of `paused` or `replaying`."""
        for subscription in subscriptions:
            numbers = self.numbers.get(subscription, [])
            held = subscription in self.paused or any(number in self.replaying for number in numbers)
            self.held[numbers] = held

    def bound(self, number: int) -> BoundFilter:
        """Returns the predicate of a version, bound to the columns of the time it was stored."""
        version = self.versions[number]
        if version.bound is None:
            schema = self.topics[version.topic].schema(version.width)
            version.bound = Filter.parse(msgspec.json.decode(version.filter)).bind(schema)
        return version.bound

    def bound_role(self, number: int, role: int) -> BoundFilter:
        """Returns the predicate of a role of a sequence."""
        return self.sequences[number].bound(role, lambda uid, width: self.topics[uid].schema(width))

    def finish_history(self, number: int, source: Source) -> None:
        """Removes a source of a version's history."""
        sources = self.replaying.get(number, set())
        sources.discard(source)
        if not sources:
            self.replaying.pop(number, None)

    def is_arriving(self, number: int) -> bool:
        """Returns whether the old server of a migrated version may still have rows to deliver."""
        return any(source.kind == "server" for source in self.replaying.get(number, ()))

    def is_unordered(self, subscription: str | None) -> bool:
        """Returns whether each notification of a subscription is a row of its own."""
        numbers = self.numbers.get(subscription or "", ())
        return any(int(self.address[number]) in self.unordered for number in numbers)

    def is_activated(self, number: int, reading: LogState) -> bool:
        """Returns whether any log, including the one being read, has activated a version."""
        return any(log.since[number] != NEVER for log in (reading, *self.logs.values()))

    def find_ended(
        self, numbers: Int64s, reading: LogState | None = None, left: Collection[str] = ()
    ) -> Int64s:
        """Returns those of the numbers that every log, including the one being read, has ended.

        Retired logs do not count, and neither do those that are `left`.
        """
        ended = np.ones(len(numbers), dtype=np.bool_)
        live = [
            log
            for log in self.logs.values()
            if not log.retired and log is not reading and log.name not in left
        ]
        if reading is not None:
            live.append(reading)
        for log in live:
            ended &= log.until[numbers] != NEVER
        return numbers[ended & self.living[numbers]]

    def used_addresses(self) -> list[str]:
        """Returns the addresses of living versions."""
        return list(self._address_number)

    def _use_address(self, address: str) -> int:
        number = self._address_number.get(address)
        if number is None:
            if self._address_free:
                number = self._address_free.pop()
                self.addresses[number] = address
            else:
                number = len(self.addresses)
                self.addresses.append(address)
                self._address_uses.append(0)
            self._address_number[address] = number
            self._note_order(number, address)
        self._address_uses[number] += 1
        return number

    def _note_order(self, number: int, address: str) -> None:
        known = self.sinks.get(settings_of(address))
        if known is not None and not known.settings.ordered:
            self.unordered.add(number)
        else:
            self.unordered.discard(number)

    def _leave_address(self, number: int) -> None:
        self._address_uses[number] -= 1
        if self._address_uses[number] == 0:
            del self._address_number[self.addresses[number]]
            self._address_free.append(number)

    def _ensure(self, capacity: int) -> None:
        size = len(self.address)
        if capacity <= size:
            return
        more = max(size, capacity - size)
        self.address = grown(self.address, more)
        self.expires = grown(self.expires, more, NEVER)
        self.incarnation = grown(self.incarnation, more)
        self._topic_of = grown(self._topic_of, more)
        self.stored_by = grown(self.stored_by, more)
        self.living = grown(self.living, more)
        self.held = grown(self.held, more)
        for log in self.logs.values():
            log.grow(more)
