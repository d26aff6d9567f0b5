"""The hosted subscriptions in memory: arrays by version, a matcher and maximal rectangles per topic.

A version of a subscription has a small **number**; numbers are used again once nothing names the version.
What the hot path needs of a version lies in numpy columns under its number: where each log activated and
ended it (`LogState.since`, `.until`; NEVER is "not yet"), until when it lives there; which address hears of
it. Each log has its own of these, because logs are read independently: what one says of a subscription must
not change what is found in another that is read later.

A version has one **entry** in its topic's matcher for each of its rectangles; entries map to numbers.

Only the writer's thread changes any of this. `fragments` may be read elsewhere: a number's fragment stays
while an outbox row names it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from edn.formats.webhooks import KeyRing
from edn.model.filter import BoundFilter, Filter
from edn.model.namespace import is_member, public_id, subscription_of
from edn.runtime.ownership import any_thread, owned
from edn_server.policies import UsageLimits
from edn_server.storage.replays import Source
from edn_server.storage.versions import NEVER, StoredVersion
from edn_server.subscriptions.counters import VersionCounters
from edn_server.subscriptions.topic_index import Flags, Int32s, Int64s, Topic

#: ends that came before their store, and are remembered: far more than a dispatcher has under way
MOST_DISCARDED = 100_000
#: addresses of ended versions that wait to be looked at; beyond, their rows wait until they are given up
MOST_LEFT = 1_000_000


class LogState:
    """One log as this server has read it."""

    def __init__(self, name: str, incarnation: int, expires: Int64s) -> None:
        """`expires`: as the versions were stored; this log's renewals change its copy."""
        capacity = len(expires)
        self.name = name
        self.incarnation = incarnation
        #: None until its stream begins
        self.cursor: int | None = None
        #: offset of the join record, once applied
        self.joined: int | None = None
        #: its dispatcher has gone over to another log
        self.retired = False
        self.since: Int64s = np.full(capacity, NEVER, dtype=np.int64)
        self.until: Int64s = np.full(capacity, NEVER, dtype=np.int64)
        self.expires: Int64s = expires.copy()

    @property
    def live(self) -> bool:
        return self.cursor is not None and not self.retired


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
        #: topics that may be without versions: candidates for being forgotten
        self.idle: set[int] = set()
        self.logs: dict[str, LogState] = {}
        #: whether there is more than one dispatcher, each with a log of its own
        self.several = False
        #: bytes that tenants may occupy
        self.limits = UsageLimits()
        #: store requests committed
        self.seq = 0
        #: living versions by number, and their numbers by subscription
        self.versions: dict[int, LiveVersion] = {}
        self.numbers: dict[str, list[int]] = {}
        #: subscription to a subtree → those of its members that are here
        self.members: dict[str, dict[str, None]] = {}
        #: the JSON of a match, by number; None where the number is free
        self.fragments: list[bytes | None] = []
        #: addresses by their number (see `storage.addresses`), and how many living versions each has
        self.addresses: list[str] = []
        self._address_number: dict[str, int] = {}
        self._address_uses: list[int] = []
        self._address_free: list[int] = []
        self._free: list[int] = []
        self._top = 0
        capacity = 1024
        self.address: Int32s = np.zeros(capacity, dtype=np.int32)
        #: as stored; `LogState.expires` is what counts
        self.expires: Int64s = np.full(capacity, NEVER, dtype=np.int64)
        self.incarnation: Int64s = np.zeros(capacity, dtype=np.int64)
        #: uid of its topic until the number is free again; 0 is none
        self._topic_of: Int64s = np.zeros(capacity, dtype=np.int64)
        self.living: Flags = np.zeros(capacity, dtype=np.bool_)
        #: what is found for it is kept and not sent
        self.held: Flags = np.zeros(capacity, dtype=np.bool_)
        #: paused subscription → {log: revision of the pause}
        self.paused: dict[str, dict[str, int]] = {}
        #: number whose history is still coming → where it comes from
        self.replaying: dict[int, set[Source]] = {}
        #: index into `log_names`: whose dispatcher stored it
        self.stored_by: Int32s = np.zeros(capacity, dtype=np.int32)
        self.log_names: list[str] = []
        #: entries removed since the last snapshot of the summaries
        self.shrinkable = 0
        #: what notifications are signed with, by the ring's id
        self.rings: dict[str, KeyRing] = {}
        #: counters by number
        self.tally = VersionCounters()
        #: numbers that ended because their subscription moved to another server, and those subscriptions as
        #: far as they left in this life
        self.moved: set[int] = set()
        self.elsewhere: set[str] = set()
        #: addresses of versions that ended, for another thread to take: rows may wait there for nobody
        self.left: deque[str] = deque(maxlen=MOST_LEFT)
        #: (log, subscription, version) of ends that came before their store (see `store`), oldest first
        self.discarded: dict[tuple[str, str, int], None] = {}

    # -- numbers ----------------------------------------------------------------------------------------

    def take_number(self) -> int:
        if self._free:
            return self._free.pop()
        self._top += 1
        return self._top - 1

    def free_number(self, number: int) -> None:
        """Nothing names the version any more."""
        if number < len(self.fragments):
            self.fragments[number] = None
            self.tally.forget(number)
        self.moved.discard(number)
        self._free.append(number)
        if number >= len(self._topic_of):
            return
        topic = self.topics.get(int(self._topic_of[number]))
        self._topic_of[number] = 0
        if topic is not None:
            topic.versions -= 1
            if topic.versions == 0:
                self.idle.add(topic.uid)

    def reserve(self, used: set[int]) -> None:
        """After a restart: the numbers in use."""
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
        """Remember versions that ended before they were stored; the oldest make room for new ones."""
        for id, version in versions:
            self.discarded[log, id, version] = None
        while len(self.discarded) > MOST_DISCARDED:
            del self.discarded[next(iter(self.discarded))]

    # -- topics -----------------------------------------------------------------------------------------

    def add_topic(
        self, uid: int, tenant: str, name: str, columns: Sequence[tuple[str, str]], engine: str
    ) -> None:
        """Host a topic, or more columns of one that is hosted."""
        if uid in self.topics:
            self.topics[uid].evolve(columns)
        else:
            self.topics[uid] = Topic(uid, tenant, name, columns, engine)
            self.idle.add(uid)  # until it has a version

    def unused_topics(self) -> list[int]:
        """Topics of which no version is left, not even one that is over and named by a waiting row."""
        self.idle = {uid for uid in self.idle if uid in self.topics and not self.topics[uid].versions}
        return sorted(self.idle)

    def forget_topics(self, uids: Iterable[int]) -> None:
        """Forget topics whose rows are gone from the database, unless a version has come meanwhile."""
        for uid in uids:
            topic = self.topics.get(uid)
            if topic is not None and not topic.versions:
                del self.topics[uid]
                self.tally.forget_topic(uid)
            self.idle.discard(uid)

    # -- versions ---------------------------------------------------------------------------------------

    def name(self, number: int, id: str, recipient: str | None, topic: int) -> None:
        """Remember how a match of this version is written, and which topic's name its rows need."""
        self._ensure(number + 1)
        if topic in self.topics and not self._topic_of[number]:
            self._topic_of[number] = topic
            self.topics[topic].versions += 1
        while len(self.fragments) <= number:
            self.fragments.append(None)
        told = public_id(id)
        match = (
            {"subscription": told} if recipient is None else {"subscription": told, "recipient": recipient}
        )
        self.fragments[number] = msgspec.json.encode(match)

    @any_thread
    def parts(self, subscription: str) -> list[str]:
        """What is here of what a subscriber calls so: that subscription, or members of it; perhaps none."""
        if subscription in self.numbers:
            return [subscription]
        return list(self.members.get(subscription, ()))

    def insert(self, new: Sequence[StoredVersion]) -> None:
        """Host versions that are durable; they match nothing before a log activates them."""
        if not new:
            return
        self._ensure(max(version.number for version in new) + 1)
        by_topic: dict[int, list[StoredVersion]] = {}
        for version in new:
            number = version.number
            self.name(number, version.id, version.recipient, version.topic)
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
            self.elsewhere.discard(version.id)
            if self.paused or self.replaying:
                self.mark_held([version.id])
            by_topic.setdefault(version.topic, []).append(version)
        for uid, versions in by_topic.items():
            self._insert_entries(self.topics[uid], versions)

    def _insert_entries(self, topic: Topic, new: list[StoredVersion]) -> None:
        rows = sum(len(version.exact) for version in new)
        entries = topic.take_entries(rows)
        lo = np.full((rows, topic.width), -np.inf)
        hi = np.full((rows, topic.width), np.inf)
        at = 0
        for version in new:
            own = entries[at : at + len(version.exact)]
            lo[at : at + len(own), : version.width] = version.lo
            hi[at : at + len(own), : version.width] = version.hi
            topic.number[own] = version.number
            topic.exact[own] = version.exact
            topic.several[own] = len(own) > 1
            at += len(own)
            self.versions[version.number] = LiveVersion(
                version.id, version.version, topic.uid, version.filter, version.width, own
            )
        if rows:
            topic.insert(entries, lo, hi)

    def remove(self, numbers: Iterable[int]) -> None:
        """Versions that every live log has ended: no event matches them, no summary needs them."""
        by_topic: dict[int, list[int]] = {}
        for number in numbers:
            version = self.versions.pop(number)
            self.living[number] = self.held[number] = False
            self.left.append(self.addresses[self.address[number]])
            self._leave_address(int(self.address[number]))
            others = self.numbers[version.id]
            others.remove(number)
            if others:
                self.tally.follow(number, others[-1])
            else:
                del self.numbers[version.id]
                self._leave_subtree(version.id)
            by_topic.setdefault(version.topic, []).extend(version.entries)
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
        """After a change of what is paused or replaying."""
        for subscription in subscriptions:
            numbers = self.numbers.get(subscription, [])
            held = subscription in self.paused or any(number in self.replaying for number in numbers)
            self.held[numbers] = held

    def bound(self, number: int) -> BoundFilter:
        """The exact predicate of a version, bound as it was when it was stored."""
        version = self.versions[number]
        if version.bound is None:
            schema = self.topics[version.topic].schema(version.width)
            version.bound = Filter.parse(msgspec.json.decode(version.filter)).bind(schema)
        return version.bound

    def arriving(self, number: int) -> bool:
        """Whether the server that it comes from may still have something to deliver."""
        return any(source.kind == "server" for source in self.replaying.get(number, ()))

    def begun(self, number: int, reading: LogState) -> bool:
        """Whether any log has activated it, also the one that is being read."""
        return any(log.since[number] != NEVER for log in (reading, *self.logs.values()))

    def over(self, numbers: Int64s, reading: LogState | None = None) -> Int64s:
        """Which of these living versions every live log has ended, the one that is being read among them."""
        ended = np.ones(len(numbers), dtype=np.bool_)
        live = [log for log in self.logs.values() if log.live and log is not reading]
        if reading is not None:
            live.append(reading)
        for log in live:
            ended &= log.until[numbers] != NEVER
        return numbers[ended & self.living[numbers]]

    def used_addresses(self) -> list[str]:
        """Return the addresses of living versions."""
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
        self._address_uses[number] += 1
        return number

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
        self.address = np.concatenate([self.address, np.zeros(more, dtype=np.int32)])
        self.expires = np.concatenate([self.expires, np.full(more, NEVER, dtype=np.int64)])
        self.incarnation = np.concatenate([self.incarnation, np.zeros(more, dtype=np.int64)])
        self._topic_of = np.concatenate([self._topic_of, np.zeros(more, dtype=np.int64)])
        self.stored_by = np.concatenate([self.stored_by, np.zeros(more, dtype=np.int32)])
        self.living = np.concatenate([self.living, np.zeros(more, dtype=np.bool_)])
        self.held = np.concatenate([self.held, np.zeros(more, dtype=np.bool_)])
        for log in self.logs.values():
            log.since = np.concatenate([log.since, np.full(more, NEVER, dtype=np.int64)])
            log.until = np.concatenate([log.until, np.full(more, NEVER, dtype=np.int64)])
            log.expires = np.concatenate([log.expires, np.full(more, NEVER, dtype=np.int64)])
