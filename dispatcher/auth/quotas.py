"""Enforces quotas of keys and tenants: rates with token buckets in memory, amounts with stored rows.

A rate is an average. A bucket holds tokens for `BURST` seconds; a request passes while the bucket is not
empty, even if it needs more tokens than are left, and the next one waits until the bucket is positive again.
So batches of any size pass, and the average holds. Each dispatcher has its own buckets. A key shares its
rates and streams with all keys that were created with it: creating keys does not increase a quota.

The quota of predicates counts comparisons of filters: each value of an `in`, each operator of an XPath. The
quota of members counts topics of subtree subscriptions: servers store each member like a subscription.
Topics, attributes and members use memory even when idle, so tenants have default quotas for them.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from dispatcher.auth.caller import Caller
from dispatcher.auth.keys import Pool, Quota
from dispatcher.store import directory, topic_rows
from dispatcher.store.interface import Connection
from edn.errors import Overloaded, Unavailable
from edn.http.request_limits import has_room_for_streams

#: default quota of concurrent streams per key
STREAMS = 100
#: number of buckets from which on full ones are dropped
BUCKETS = 1024
#: capacity of a bucket, in seconds of its rate
BURST = 2.0
#: Retry-After of an exceeded amount, in seconds
RETRY_SECONDS = 60.0


@dataclass(slots=True)
class Bucket:
    rate: float
    left: float
    filled: float
    #: capacity; 0 is `BURST` seconds of the rate
    most: float = 0.0

    def wait(self, now: float) -> float:
        """Refills the bucket; returns the seconds until a request may pass."""
        self.left = min(self.most or self.rate * BURST, self.left + (now - self.filled) * self.rate)
        self.filled = now
        return 0.0 if self.left > 0 else (1e-3 - self.left) / self.rate

    def is_full(self, now: float) -> bool:
        return self.left + (now - self.filled) * self.rate >= (self.most or self.rate * BURST)

    def spend(self, amount: float) -> None:
        self.left -= amount


def check_descriptors() -> None:
    """Raises `Unavailable` when too few file descriptors are left for another long connection."""
    if not has_room_for_streams():
        raise Unavailable("too many open streams on this dispatcher; try again later", retry_after=5)


@dataclass(frozen=True, slots=True)
class TenantLimits:
    topics: int = 1_000
    attributes: int = 10_000
    members: int = 10_000


def _whose(key: str, who: Caller) -> str:
    """Names the key whose quota is exceeded: the caller's own, or one that it was created with."""
    return "this key's quota" if key == who.key else f"the quota of its parent key {key}"


class Quotas:
    """Checks and counts the use of quotas; event loop only."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, limits: TenantLimits | None = None
    ) -> None:
        self._clock = clock
        self._limits = limits or TenantLimits()
        #: (key, "requests" or "events") → bucket
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._most_buckets = BUCKETS
        #: key → open streams of it and of the keys created with it
        self._streams: Counter[str] = Counter()

    def count_request(self, who: Caller) -> None:
        for bucket in self._buckets_of(who, "requests"):
            bucket.spend(1)

    def event_buckets(self, who: Caller) -> list[Bucket]:
        """Returns the buckets to charge for published events; raises `Overloaded`."""
        return self._buckets_of(who, "events")

    @contextlib.contextmanager
    def open_stream(self, who: Caller) -> Iterator[None]:
        """Counts a stream while it is open; raises `Overloaded` or `Unavailable`."""
        counted = [(who.key, who.quota.streams), *((pool.key, pool.streams) for pool in who.quota.pools)]
        for key, limit in counted:
            most = STREAMS if limit is None else limit
            # The network's secret and callers in open mode have no key.
            if key and self._streams[key] >= most:
                raise Overloaded(
                    f"open streams must be at most {most} ({_whose(key, who)}); close one first",
                    retry_after=RETRY_SECONDS,
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

    def _buckets_of(self, who: Caller, what: Literal["requests", "events"]) -> list[Bucket]:
        """Returns the buckets of a key and of its parent keys; raises `Overloaded` if one is empty."""
        found = []
        limited: list[tuple[str, Quota | Pool]] = [(who.key, who.quota)]
        limited += [(pool.key, pool) for pool in who.quota.pools]
        for key, limits in limited:
            rate = limits.requests_per_second if what == "requests" else limits.events_per_second
            if rate is None:
                continue
            bucket = self._buckets.get((key, what))
            if bucket is None or bucket.rate != rate:
                self._drop_full()
                bucket = self._buckets[key, what] = Bucket(rate, rate * BURST, self._clock())
            pause = bucket.wait(self._clock())
            if pause > 0:
                raise Overloaded(
                    f"{what} must be at most {rate:g} per second ({_whose(key, who)})",
                    retry_after=pause,
                )
            found.append(bucket)
        return found

    def _drop_full(self) -> None:
        """Drops full buckets, which equal new ones, once there are many."""
        if len(self._buckets) >= self._most_buckets:
            now = self._clock()
            self._buckets = {
                name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now)
            }
            self._most_buckets = max(BUCKETS, 2 * len(self._buckets))

    def room(self, who: Caller) -> Room:
        """Returns the caller's quotas of amounts, to be checked in the transaction that adds something."""
        return Room(who, self._limits)


class Room:
    """Quotas of amounts of one caller's tenant. Any thread.

    Checks are exact only inside the transaction that appends, which sees concurrent requests. With a reader,
    they only refuse early.
    """

    def __init__(self, who: Caller, limits: TenantLimits) -> None:
        self._quota = who.quota
        self._tenant = who.tenant
        #: the key's quotas, or the tenant's defaults
        self._limits = {
            name: default if (own := getattr(who.quota, name)) is None and who.tenant else own
            for name, default in asdict(limits).items()
        }

    def check_subscriptions(
        self, connection: Connection, predicates: Sequence[int], instead: Collection[str] = ()
    ) -> None:
        """Raises `Overloaded` if new subscriptions exceed a quota; `predicates`: of each filter.

        `instead`: ids of the subscriptions that they replace.
        """
        quota = self._quota
        if quota.subscriptions is None and quota.predicates is None:
            return
        count, used = directory.count_of_tenant(connection, self._tenant, instead)
        _check("subscriptions", count, len(predicates), quota.subscriptions, "delete some first")
        _check("predicates", used, sum(predicates), quota.predicates, "delete some subscriptions first")

    def check_members(self, connection: Connection, more: int) -> None:
        """Raises `Overloaded` if `more` members of subtree subscriptions exceed the quota."""
        most = self._limits["members"]
        if most is None or more <= 0:
            return
        count = directory.count_members_of_tenant(connection, self._tenant)
        advice = "delete some subtree subscriptions, or narrow them"
        _check("members of subtree subscriptions", count, more, most, advice)

    def check_topics(self, connection: Connection, topics: int, attributes: int) -> None:
        """Raises `Overloaded` if so many more topics or attributes exceed a quota.

        Removed attributes count: their columns remain as long as the topic.
        """
        if all(self._limits[name] is None for name in ("topics", "attributes")):
            return
        count, used = topic_rows.count_of_tenant(connection, self._tenant)
        _check("topics", count, topics, self._limits["topics"], "delete some first")
        _check("attributes", used, attributes, self._limits["attributes"], "delete some topics first")


def _check(what: str, have: int, more: int, most: int | None, advice: str) -> None:
    if most is not None and more > 0 and have + more > most:
        raise Overloaded(
            f"{have} {what} and {more} more would exceed this key's quota of {most}; {advice}",
            retry_after=RETRY_SECONDS,
        )
