"""The circuit breaker of an address: healthy, failing or disabled. Pure transitions.

    healthy     the last attempt was accepted
    failing     the last attempts failed; the oldest batch is retried, not before `next_attempt`
    disabled    no attempts: the sink answered 410 ("gone"), or failed for `disable_seconds` ("failing").
                New notifications become dead letters, which can be requeued

      healthy ──failure──> failing ──warn_seconds──> warned ──disable_seconds──> disabled
         ^─────success─────────┘<─────────────────────┘         any ──410──────────^
         ^───────────────────────── enabled by a call ──────────────────────────────┘

The **standing** decides which slots the attempts may use (`sinks.concurrency`): an address that failed, or
answered slowly, cannot use up the slots of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

import msgspec

from edn_server.policies import BreakerLimits
from edn_server.sinks.concurrency import Standing
from edn_server.storage import sink_state
from edn_server.storage.interface import Connection
from edn_server.storage.writer import Job

#: an address whose last answer took longer is slow
SLOW_SECONDS = 1.0

Disabled = Literal["gone", "failing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Times are microseconds of steady time (`edn.runtime.clock`); a wall clock step ages no failure."""

    #: failed attempts in a row
    failures: int = 0
    failing_since: int | None = None
    #: first row of the batch that is retried, and its attempts
    row: int = 0
    attempts: int = 0
    next_attempt: int = 0
    warned: int | None = None
    disabled: Disabled | None = None
    disabled_since: int | None = None
    #: reason of the last failure
    reason: str | None = None
    slow: bool = False

    @property
    def state(self) -> Literal["healthy", "failing", "disabled"]:
        if self.disabled is not None:
            return "disabled"
        return "failing" if self.failures else "healthy"

    def standing(self, *, tried: bool) -> Standing:
        """`tried`: whether an attempt succeeded since this server started."""
        if self.failures:
            return "failing"
        if self.slow:
            return "slow"
        return "quick" if tried else "new"

    def attempts_of(self, row: int) -> int:
        return self.attempts if row == self.row else 0

    def succeeded(self, seconds: float) -> Health:
        return HEALTHY if seconds <= SLOW_SECONDS else Health(slow=True)

    def failed(self, limits: BreakerLimits, *, row: int, now: int, next_attempt: int, reason: str) -> Health:
        """Return the state after a failed attempt; it may be newly `warned` or `disabled`."""
        since = self.failing_since if self.failing_since is not None else now
        failing = (now - since) / 1e6
        after = replace(
            self,
            failures=self.failures + 1,
            failing_since=since,
            row=row,
            attempts=self.attempts_of(row) + 1,
            next_attempt=next_attempt,
            reason=reason,
        )
        if failing >= limits.disable_seconds:
            return after.stopped("failing", now)
        if failing >= limits.warn_seconds and self.warned is None:
            return replace(after, warned=now)
        return after

    def stopped(self, why: Disabled, now: int) -> Health:
        return replace(self, disabled=why, disabled_since=now)


HEALTHY = Health()

_FIELDS = tuple(sorted(field.name for field in fields(Health)))


def load(db: Connection) -> dict[str, Health]:
    """Load the addresses that are not healthy."""
    found: dict[str, Health] = {}
    for address, data in sink_state.health(db):
        values = msgspec.json.decode(data)
        found[address] = Health(**{name: values[name] for name in _FIELDS if name in values})
    return found


class Save(Job[None]):
    """Stores the state of an address; None is healthy."""

    def __init__(self, address: str, health: Health | None) -> None:
        self._address = address
        fields = None if health is None else {name: getattr(health, name) for name in _FIELDS}
        self._state = None if fields is None else msgspec.json.encode(fields)

    def work(self, db: Connection) -> None:
        sink_state.store_health(db, self._address, self._state)
