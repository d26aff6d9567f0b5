"""Judges answers: whether a subscription existed when a call was accepted or refused as unknown.

Theory of operation ------------------- A call that names a subscription (change, renew, pause, resume,
unsubscribe) is refused with 404 if the subscription does not exist, and accepted only if it does. So an
answer is evidence about the place of the call in the log, which lies between its request and its answer:

    ended      it was refused as unknown, although at every such place the subscription certainly existed: a
               subscribe was answered before, no operation that can have ended it took place since, and no
               expiry that can have been in force was reached, by the clock's tolerance
    revived    it was accepted, although at every such place the subscription certainly had ended: no
    operation
               that can have begun or prolonged it could reach that place

An expiry is in force until a certain later renewal or change has replaced it. Both rules judge one
subscription by itself, and only from certain operations: one of unknown outcome may have happened at any
time, or never.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edn.tools.checker.history import Life
from edn.tools.checker.recording.records import Fail
from edn.tools.checker.timeline import NEVER, Effect

#: the answer to a call about a subscription that does not exist
UNKNOWN = 404
_KNOWN = ("change", "renew", "pause", "resume", "unsubscribe")
#: operations that set an expiry
_LASTING = ("subscribe", "change", "renew")


def ended(life: Life, slack: int) -> Iterator[int]:
    """Finds refusals although the subscription certainly existed; yields the places of their requests.

    `slack`: nanoseconds by which the network's clock may differ.
    """
    for operation in life.refused:
        answer = operation.answer
        if operation.invoke.kind not in _KNOWN or not isinstance(answer, Fail) or answer.status != UNKNOWN:
            continue
        begin, end = operation.invoke.time, answer.time
        if _certainly_exists(life, begin, end, slack):
            yield operation.place


def _certainly_exists(life: Life, begin: int, end: int, slack: int) -> bool:
    began = max(
        (one for one in life.of("subscribe") if one.sure and one.end < begin),
        key=lambda one: one.begin,
        default=None,
    )
    if began is None:
        return False
    if any(one.begin <= end and one.end >= began.begin for one in life.of("unsubscribe")):
        return False
    lasting = [one for one in life.of(*_LASTING) if one.begin <= end and one.end >= began.begin]
    return all(one.expires[0] - slack > end or _replaced(one, lasting, slack) for one in lasting)


def _replaced(effect: Effect, lasting: Sequence[Effect], slack: int) -> bool:
    """Returns whether an expiry was certainly replaced before it was reached."""
    return any(one.sure and one.begin > effect.end and one.end < effect.expires[0] - slack for one in lasting)


def revived(life: Life, slack: int) -> Iterator[Effect]:
    """Finds operations that were accepted although the subscription certainly had ended."""
    begins = life.of("subscribe")
    ends = [one for one in life.of("unsubscribe") if one.sure]
    for effect in life.of(*_KNOWN):
        if not effect.sure:
            continue
        # Subscribes that can precede it, without a certain end in between.
        origins = [
            one
            for one in begins
            if one.begin <= effect.end
            and not any(
                last is not effect and one.end < last.begin and last.end < effect.begin for last in ends
            )
        ]
        if not origins or not _can_last(life, origins, effect, slack):
            yield effect


def _can_last(life: Life, origins: Sequence[Effect], effect: Effect, slack: int) -> bool:
    """Returns whether any expiry that can be in force lies after the earliest place of an operation."""
    first = min(one.begin for one in origins)
    lasting = [
        one
        for one in life.of(*_LASTING)
        if one is not effect and one.begin <= effect.end and (one.end >= first or one.end == NEVER)
    ]
    return any(one.expires[1] + slack >= effect.begin for one in lasting)
