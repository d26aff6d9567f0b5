"""When an attempt to notify is made again: pure decisions, so that a table of cases is their test.

    2xx                    delivered
    410                    the sink wants no more: the row is dropped
    anything else          again later: 0.5 s, doubled up to 60 s, each shortened by up to half at random, so
                           that sinks that failed together are not called together. A Retry-After that is
                           longer is obeyed, up to an hour

There is no last attempt: a row waits until it is delivered, and those of its address wait behind it in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

FIRST = 0.5
LONGEST = 60.0
LONGEST_ASKED = 3600.0


@dataclass(frozen=True, slots=True)
class Decision:
    kind: Literal["delivered", "dropped", "again"]
    #: seconds to wait, when it is "again"
    delay: float = 0.0


def decide(
    status: int | None, retry_after: str | None, attempt: int, chance: float, now: datetime
) -> Decision:
    """What follows an attempt: its answer's status (None: no answer), counted from 1; `chance` in [0, 1)."""
    if status is not None and 200 <= status < 300:
        return Decision("delivered")
    if status == 410:
        return Decision("dropped")
    backoff = min(LONGEST, FIRST * 2.0 ** min(attempt - 1, 32)) * (1 - chance / 2)
    return Decision("again", max(backoff, min(asked(retry_after, now), LONGEST_ASKED)))


def asked(retry_after: str | None, now: datetime) -> float:
    """Seconds that a Retry-After asks for: a number, or an HTTP date; 0 when it is neither."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:12])
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - now).total_seconds())
