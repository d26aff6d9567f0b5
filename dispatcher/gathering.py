"""What several servers say about one subscription, as one answer: for those to subtrees, whose members are on
more than one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: the worst first
_STATES = ("disabled", "failing", "healthy")
_COUNTED = ("evaluated", "matched", "delivered", "failed", "dead_letters", "buffered_bytes", "dropped")

#: of one of which no server hosts anything yet
NOTHING: dict[str, Any] = {
    "state": "healthy",
    "failures": 0,
    "failing_since": None,
    "next_attempt": None,
    "warned": None,
    "disabled": None,
    "disabled_since": None,
    "reason": None,
    "signed": False,
    "consent": None,
    "dropped_limit": None,
    "dropped_last": None,
    **dict.fromkeys(_COUNTED, 0),
}


def delivery(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`edn.evidence.Delivery`: where its address fares worst, and what was counted anywhere."""
    if not answers:
        return NOTHING
    worst = min(answers, key=lambda one: (_STATES.index(one["state"]), -int(one["failures"])))
    # Each server asks the sink by itself: as long as one awaits the answer, it is awaited.
    consent = min((one["consent"] for one in answers if one["consent"]), default=None)
    lost = max(answers, key=lambda one: str(one["dropped_last"] or ""))
    last = {name: lost[name] for name in ("dropped_limit", "dropped_last")}
    return {
        **worst,
        **last,
        "consent": consent,
        **{name: sum(one[name] for one in answers) for name in _COUNTED},
    }


def attempts(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`edn.evidence.AttemptList`: the newest first, wherever they were made."""
    found = [attempt for answer in answers for attempt in answer["attempts"]]
    return {"attempts": sorted(found, key=lambda attempt: str(attempt["time"]), reverse=True)}


def queued(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`edn.evidence.Queued`."""
    return {
        "letters": sum(one["letters"] for one in answers),
        "notifications": sum(one["notifications"] for one in answers),
        "more": any(one["more"] for one in answers),
    }
