"""What a key may use up, held against what it does: rates by buckets in memory, amounts by what is stored.

A rate is an average: a bucket holds two seconds' worth, and whatever comes while there is something in it
passes, also what is more than is left; the bucket must fill up again before the next. So a batch of any size
gets through once in a while, and the average holds. Each dispatcher has buckets of its own.

A **predicate** is an attribute that a filter constrains.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edn.errors import Overloaded
from edn.namespace import MEMBER

if TYPE_CHECKING:
    from dispatcher.access import Caller

#: seconds of a rate that may come at once
BURST = 2.0
#: seconds after which trying again is worth it, when it is others who must make room
PATIENCE = 60.0


@dataclass(slots=True)
class Bucket:
    rate: float
    left: float
    filled: float

    def wait(self, now: float) -> float:
        """Seconds until something may pass; 0 for at once."""
        self.left = min(self.rate * BURST, self.left + (now - self.filled) * self.rate)
        self.filled = now
        return 0.0 if self.left > 0 else (1e-3 - self.left) / self.rate

    def spend(self, amount: float) -> None:
        self.left -= amount


class Quotas:
    """Event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: by key and what is counted
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def request(self, who: Caller) -> None:
        """A call; raises `Overloaded`."""
        rate = who.quota.requests_per_second
        if rate is not None:
            self._passing(who, "requests", rate).spend(1)

    def publishing(self, who: Caller) -> Bucket | None:
        """Events are about to be published; the bucket that they are taken from, or `Overloaded`."""
        rate = who.quota.events_per_second
        return None if rate is None else self._passing(who, "events", rate)

    def _passing(self, who: Caller, what: str, rate: float) -> Bucket:
        bucket = self._buckets.get((who.key, what))
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[who.key, what] = Bucket(rate, rate * BURST, self._clock())
        pause = bucket.wait(self._clock())
        if pause > 0:
            raise Overloaded(
                f"more than {rate:g} {what} a second, which is this key's quota", retry_after=pause
            )
        return bucket

    @staticmethod
    def check_room(
        who: Caller,
        reader: sqlite3.Connection,
        topics: Collection[int],
        filters: Sequence[Collection[str]],
        instead: Collection[str] = (),
    ) -> None:
        """Subscriptions with filters on these attributes are about to begin on one of the tenant's topics.

        `instead`: the ids of those that end with it. Raises `Overloaded`.
        """
        quota = who.quota
        if quota.subscriptions is None and quota.predicates is None:
            return
        count, predicates = reader.execute(
            "SELECT count(*), coalesce(sum(json_array_length(attributes)), 0) FROM subscriptions"
            # One to a subtree counts once, however many topics it has.
            f" WHERE ((topic IN (SELECT value FROM json_each(?1)) AND instr(id, '{MEMBER}') = 0)"
            " OR (subtree IS NOT NULL AND substr(subtree, 1, length(?3)) = ?3"
            "  AND instr(subtree, '/') = length(?3)))"
            " AND id NOT IN (SELECT value FROM json_each(?2))",
            (json.dumps(list(topics)), json.dumps(list(instead)), f"{who.tenant}/" if who.tenant else ""),
        ).fetchone()
        wanted = sum(len(attributes) for attributes in filters)
        for what, have, more, most in (
            ("subscriptions", count, len(filters), quota.subscriptions),
            ("predicates", predicates, wanted, quota.predicates),
        ):
            if most is not None and more and have + more > most:
                raise Overloaded(
                    f"{have} {what} and {more} more would be beyond {most}, which is this key's quota; "
                    "cancel some first",
                    retry_after=PATIENCE,
                )
