"""When an attempt to notify is made again: pure decisions, so that a table of cases is their test.

    2xx                    delivered
    410                    gone: the address wants no more, and hears no more until somebody enables it
    permanent              dead: the sink itself said that no later attempt will do (mail: 5xx), or its
                           subscriber said so of this status
    4xx                    refused: the address lives and does not take this row. After `refused_attempts` of
                           its own the row is dead, so that one bad row does not hold back the others for days
    broken                 refused, too: this server failed at the attempt by an error of its own
    anything else          again, until the row is older than `give_up_seconds`; then it is dead

The delay is the policy's step for the attempt that failed, the last step again and again, each shortened by
up to half at random, so that sinks that failed together are not called together. Steps are counted by the
address's failures in a row, not by the row's: an address that has been dead for days is not knocked at anew
for each row that it missed. Of a row that is *refused* its own attempts count. A Retry-After that is longer
is obeyed, up to `longest_asked`. 408, 425 and 429 speak of the moment, not of the row, and refuse nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from edn_server.policies import RetryPolicy

#: of the moment
_PASSING = frozenset({408, 425, 429})
#: a longer Retry-After is cut: no HTTP date has more, and longer numbers are capped anyway
_HEADER_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Decision:
    kind: Literal["delivered", "gone", "dead", "again"]
    #: seconds to wait, when it is "again"
    delay: float = 0.0
    #: seconds of it that the sink asked for
    asked: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The state of a row after an attempt, besides the answer."""

    #: attempts of this row, this one among them
    attempt: int
    #: failures of its address in a row, this one among them
    failures: int
    #: seconds since the row was written
    age: float


def decide(
    policy: RetryPolicy,
    status: int | None,
    retry_after: str | None,
    after: Failed,
    *,
    chance: float,
    now: datetime,
    permanent: bool = False,
    broken: bool = False,
) -> Decision:
    """Decide what follows an attempt, by its status (None: no answer); `chance` in [0, 1)."""
    if status is not None and 200 <= status < 300:
        return Decision("delivered")
    if status == 410:
        return Decision("gone")
    refused = broken or is_refusal(status)
    if permanent or status in policy.permanent or after.age >= policy.give_up_seconds:
        return Decision("dead")
    if refused and after.attempt >= policy.refused_attempts:
        return Decision("dead")
    step = after.attempt if refused else after.failures
    delay = policy.steps[min(step, len(policy.steps)) - 1] * (1 - chance / 2)
    wanted = asked(retry_after, now, policy.longest_asked)
    return Decision("again", max(delay, wanted), wanted)


def is_refusal(status: int | None) -> bool:
    """Return whether a status says that the sink lives and refuses this row."""
    return status is not None and 400 <= status < 500 and status not in _PASSING


def asked(retry_after: str | None, now: datetime, longest: float) -> float:
    """Return the seconds that a Retry-After asks for, from 0 to `longest`; 0 when it cannot be read.

    The value comes from a stranger: digits or an HTTP date are read, everything else counts as absent.
    """
    text = (retry_after or "").strip()[:_HEADER_CHARACTERS]
    if text.isascii() and text.isdecimal():
        return min(float(text), longest)
    try:
        until = parsedate_to_datetime(text)
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        seconds = (until - now).total_seconds()
    except Exception:  # the parser raises ValueError, OverflowError and others, depending on the text
        return 0.0
    return min(max(0.0, seconds), longest)
