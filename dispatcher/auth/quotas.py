"""Enforces the limits of keys and tenants: rates by buckets in memory, amounts by stored rows.

A rate is an average: a bucket holds two seconds' worth, and whatever comes while there is something in it
passes, also what is more than is left; the bucket must fill up again before the next. So a batch of any size
gets through once in a while, and the average holds. Each dispatcher has buckets of its own. Rates and streams
of a key are shared with the keys that were made with it: making more keys gives nobody more.

A **predicate** is a comparison that a filter makes; each value of an `in` counts, and each operator of an
XPath. A **member** is a topic that a subscription to a subtree reaches: servers store each like a
subscription of its own. Topics, attributes and members cost servers and dispatchers memory whether they are
used or not, so a tenant has limits of these even where its keys name none.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dispatcher.auth.caller import Caller
from dispatcher.auth.keys import Pool, Quota
from dispatcher.store import directory, topic_rows
from dispatcher.store.interface import Connection
from edn.errors import Overloaded, Unavailable
from edn.http.request_limits import has_room_for_streams

#: streams that are read with one key at the same time, where its quota does not say
STREAMS = 100
#: buckets from which on full ones are forgotten
BUCKETS = 1024
#: seconds of a rate that may come at once
BURST = 2.0
#: seconds after which trying again is worth it, when it is others who must make room
PATIENCE = 60.0


@dataclass(slots=True)
class Bucket:
    rate: float
    left: float
    filled: float
    #: 0 for `BURST` seconds' worth
    most: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until something may pass; 0 for at once."""
        self.left = min(self.most or self.rate * BURST, self.left + (now - self.filled) * self.rate)
        self.filled = now
        return 0.0 if self.left > 0 else (1e-3 - self.left) / self.rate

    def is_full(self, now: float) -> bool:
        return self.left + (now - self.filled) * self.rate >= (self.most or self.rate * BURST)

    def spend(self, amount: float) -> None:
        self.left -= amount


def check_descriptors() -> None:
    """Raise `Unavailable` when too few descriptors are left to hold one more connection open for long."""
    if not has_room_for_streams():
        raise Unavailable("too many streams are open here; try again later", retry_after=5)


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """Limits of a tenant whose key names none."""

    topics: int = 1_000
    attributes: int = 10_000
    members: int = 10_000


def _whose(key: str, who: Caller) -> str:
    """Name the key whose limit it is: the caller's own, or one that it was made with."""
    return "this key's" if key == who.key else f"its maker's (key {key})"


class Quotas:
    """Event loop only."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, limits: TenantLimits | None = None
    ) -> None:
        self._clock = clock
        self._limits = limits or TenantLimits()
        #: by key and what is counted
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._most_buckets = BUCKETS
        #: open streams by key, with those of the keys that were made with it
        self._streams: Counter[str] = Counter()

    def request(self, who: Caller) -> None:
        """A call; raises `Overloaded`."""
        for bucket in self._passing(who, "requests"):
            bucket.spend(1)

    def publishing(self, who: Caller) -> list[Bucket]:
        """Return the buckets that events are taken from which are about to be published; or `Overloaded`."""
        return self._passing(who, "events")

    @contextlib.contextmanager
    def stream(self, who: Caller) -> Iterator[None]:
        """Count a stream for as long as it is read; raises `Overloaded`, or `Unavailable`."""
        counted = [(who.key, who.quota.streams), *((pool.key, pool.streams) for pool in who.quota.pools)]
        for key, limit in counted:
            most = STREAMS if limit is None else limit
            # Whoever holds the network's secret, and everybody in open mode, have no key.
            if key and self._streams[key] >= most:
                raise Overloaded(
                    f"{most} streams are read, which is {_whose(key, who)} quota; end one first",
                    retry_after=PATIENCE,
                )
        check_descriptors()
        for key, _ in counted:
            self._streams[key] += 1
        try:
            yield
        finally:
            for key, _ in counted:
                self._streams[key] -= 1
                if not self._streams[key]:
                    del self._streams[key]

    def _passing(self, who: Caller, what: Literal["requests", "events"]) -> list[Bucket]:
        """Return the buckets of a caller's key and of its makers; raises `Overloaded` if one is empty."""
        found = []
        limited: list[tuple[str, Quota | Pool]] = [(who.key, who.quota)]
        limited += [(pool.key, pool) for pool in who.quota.pools]
        for key, limits in limited:
            rate = limits.requests_per_second if what == "requests" else limits.events_per_second
            if rate is None:
                continue
            bucket = self._buckets.get((key, what))
            if bucket is None or bucket.rate != rate:
                self._forget_full()
                bucket = self._buckets[key, what] = Bucket(rate, rate * BURST, self._clock())
            pause = bucket.wait(self._clock())
            if pause > 0:
                raise Overloaded(
                    f"more than {rate:g} {what} a second, which is {_whose(key, who)} quota",
                    retry_after=pause,
                )
            found.append(bucket)
        return found

    def _forget_full(self) -> None:
        """Drop the buckets that a new one would equal, once there are many: keys come and go."""
        if len(self._buckets) >= self._most_buckets:
            now = self._clock()
            self._buckets = {
                name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now)
            }
            self._most_buckets = max(BUCKETS, 2 * len(self._buckets))

    def room(self, who: Caller) -> Room:
        """Return the limits of a caller, to be checked inside the transaction that adds something."""
        return Room(who, self._limits)


class Room:
    """What one caller may still add to what its tenant has. Any thread.

    Only what the transaction that appends sees is exact: of two calls at the same time, one that reads
    earlier does not see the other's. Asked with a reader it only refuses early.
    """

    def __init__(self, who: Caller, limits: TenantLimits) -> None:
        self._quota = who.quota
        self._tenant = who.tenant
        given = {"topics": limits.topics, "attributes": limits.attributes, "members": limits.members}
        #: of the key, else, for a tenant, of the network
        self._limits = {
            name: default if (named := getattr(who.quota, name)) is None and who.tenant else named
            for name, default in given.items()
        }

    def check_subscriptions(
        self, connection: Connection, predicates: Sequence[int], instead: Collection[str] = ()
    ) -> None:
        """Raise `Overloaded` unless subscriptions whose filters have so many predicates may begin.

        `instead`: the ids of those that end with it.
        """
        quota = self._quota
        if quota.subscriptions is None and quota.predicates is None:
            return
        count, used = directory.count_of_tenant(connection, self._tenant, instead)
        _check("subscriptions", count, len(predicates), quota.subscriptions, "cancel some first")
        _check("predicates", used, sum(predicates), quota.predicates, "cancel some first")

    def check_members(self, connection: Connection, more: int) -> None:
        """Raise `Overloaded` unless subscriptions to subtrees may reach so many more topics."""
        most = self._limits["members"]
        if most is None or more <= 0:
            return
        count = directory.count_members_of_tenant(connection, self._tenant)
        _check("members of subtrees", count, more, most, "cancel some, or name fewer topics")

    def check_topics(self, connection: Connection, topics: int, attributes: int) -> None:
        """Raise `Overloaded` unless so many more topics, and attributes of topics, may be.

        Attributes that were taken away count: their columns stay as long as the topic.
        """
        if all(self._limits[name] is None for name in ("topics", "attributes")):
            return
        count, used = topic_rows.count_of_tenant(connection, self._tenant)
        _check("topics", count, topics, self._limits["topics"], "delete some first")
        _check("attributes", used, attributes, self._limits["attributes"], "delete some topics first")


def _check(what: str, have: int, more: int, most: int | None, advice: str) -> None:
    if most is not None and more > 0 and have + more > most:
        raise Overloaded(
            f"{have} {what} and {more} more would be beyond {most}, which is this key's quota; {advice}",
            retry_after=PATIENCE,
        )
