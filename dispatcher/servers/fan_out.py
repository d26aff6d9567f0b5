"""Combines the answers of the servers that host members of one subtree subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from edn.api.delivery import AttemptList, Delivery, Queued

#: states of an address, the worst first
_STATES = ("disabled", "failing", "healthy")
_COUNTED = ("evaluated", "matched", "delivered", "failed", "dead_letters", "buffered_bytes", "dropped")


def delivery(answers: Sequence[dict[str, Any]]) -> Delivery:
    """Return the worst state of all servers, with the sums of their counters."""
    if not answers:
        return Delivery("healthy")
    found = msgspec.convert(answers, list[Delivery])
    worst = min(found, key=lambda one: (_STATES.index(one.state), -one.failures))
    lost = max(found, key=lambda one: one.dropped_last or "")
    return msgspec.structs.replace(
        worst,
        # Each server asks for consent; it is pending until all servers have it.
        consent=min((one.consent for one in found if one.consent), default=None),
        dropped_limit=lost.dropped_limit,
        dropped_last=lost.dropped_last,
        **{name: sum(getattr(one, name) for one in found) for name in _COUNTED},
    )


def attempts(answers: Sequence[dict[str, Any]]) -> AttemptList:
    """Return the attempts of all servers, newest first."""
    found = [attempt for one in msgspec.convert(answers, list[AttemptList]) for attempt in one.attempts]
    return AttemptList(sorted(found, key=lambda attempt: attempt.time, reverse=True))


def queued(answers: Sequence[dict[str, Any]]) -> Queued:
    found = msgspec.convert(answers, list[Queued])
    return Queued(
        letters=sum(one.letters for one in found),
        notifications=sum(one.notifications for one in found),
        more=any(one.more for one in found),
    )
