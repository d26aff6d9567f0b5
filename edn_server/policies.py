"""Delivery policies that an operator can set: batching, retries, circuit breaker, limits.

Data only, so that `config` does not import the modules that apply them.
"""

from __future__ import annotations

from dataclasses import dataclass

#: seconds between attempts; the last step repeats
STEPS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Limits of one POST, and how long a row waits for further rows."""

    events: int = 500
    bytes: int = 1 << 20
    #: seconds; 0 sends waiting rows at once, and later rows with the next POST
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed attempt is retried (`delivery.retry`)."""

    steps: tuple[float, ...] = STEPS
    #: age from which a row is not retried
    give_up_seconds: float = 72 * 3600.0
    refused_attempts: int = 12
    longest_asked: float = 3600.0
    #: statuses after which there is no further attempt
    permanent: frozenset[int] = frozenset()

    @property
    def longest(self) -> float:
        """The longest rest of an address."""
        return max(self.longest_asked, *self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimits:
    """After how long a failing address gets a warning and is disabled (`delivery.circuit_breaker`)."""

    warn_seconds: float = 36 * 3600.0
    disable_seconds: float = 5 * 86_400.0


@dataclass(frozen=True, slots=True)
class UsageLimits:
    """Bytes that each tenant may occupy on this server, per kind; 0 is no limit."""

    paused: int = 256 << 20
    stream: int = 256 << 20
    dead: int = 256 << 20

    def of(self, kind: str) -> int:
        """Returns the limit of a kind of `storage.usage`; 0 for a kind without limit."""
        return int(getattr(self, kind, 0))
