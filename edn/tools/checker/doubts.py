"""Decides whether a missing notification is conclusive.

It is, if the network was at rest after the event, the address recorded all notifications until then, and the
subscription was not paused.
"""

from __future__ import annotations

import numpy as np

from edn.tools.checker.columns import Indices
from edn.tools.checker.history import Life
from edn.tools.checker.obligations import Lawbook
from edn.tools.checker.published import Numbers, TopicEvents
from edn.tools.checker.recording.reading import Recording
from edn.tools.checker.timeline import NEVER, Mask, Times

CERTAIN, EXCUSED, NO_QUIET, NOT_LISTENING, PAUSED = range(5)
#: reasons for a report; an excused address needs none
REASONS = {
    NO_QUIET: "due, but the network was never said to be at rest after they were published",
    NOT_LISTENING: "due, but nobody recorded what their address accepted",
    PAUSED: "due, but their subscription was not surely resumed",
}


class Doubts:
    def __init__(self, recording: Recording) -> None:
        self._excused = recording.excused
        self._heard = _heard(recording)
        self._quiets = np.array(recording.quiets, dtype=np.int64)

    def about(self, life: Life, law: Lawbook, events: TopicEvents, missing: Indices) -> Numbers:
        """Returns for each event whether its missing notification is conclusive, or why not."""
        doubts = np.full(len(missing), CERTAIN, dtype=np.int32)
        resumed = max((effect.end for effect in life.of("resume") if effect.end < NEVER), default=-NEVER)
        quiet = self.quiet_after(np.maximum(events.high[missing], resumed))
        unheard, excused = self._unheard(law, events, missing, quiet)
        doubts[unheard] = NOT_LISTENING
        for pause in life.of("pause"):
            resumed = min(
                (one.begin for one in life.of("resume") if one.sure and one.begin > pause.end), default=NEVER
            )
            if _may_end(life, pause.begin, resumed):
                # Buffered notifications and the rest of the replay end with the subscription.
                kept = (events.high[missing] >= pause.begin) | (
                    events.kept_at_most[missing] > events.high[missing]
                )
                excused |= kept & (events.low[missing] <= resumed)
            elif resumed == NEVER:
                doubts[quiet > pause.begin] = PAUSED
        doubts[quiet == NEVER] = NO_QUIET
        doubts[excused] = EXCUSED
        return doubts

    def about_address(self, life: Life, address: str | None, low: int, high: int) -> int:
        """Returns whether a missing notification to one address is conclusive, or why not.

        It became due between `low` and `high`.
        """
        pauses, resumes = life.of("pause"), life.of("resume")
        # Buffered notifications go to the address at the time of delivery.
        used = {effect.address for effect in life.effects if effect.alive} if pauses else {address}
        if not self._excused.isdisjoint(used):
            return EXCUSED
        for pause in pauses:
            resumed = min((one.end for one in resumes if one.sure and one.begin > pause.end), default=NEVER)
            if _may_end(life, pause.begin, resumed):
                return EXCUSED  # what was buffered ends with the subscription
            if resumed == NEVER:
                return PAUSED
            high = max(high, resumed)
        quiet = int(self.quiet_after(np.array([high], dtype=np.int64))[0])
        if quiet == NEVER:
            return NO_QUIET
        if address is not None and not any(
            begin <= low and quiet <= end for begin, end in self._heard.get(address, ())
        ):
            return NOT_LISTENING
        return CERTAIN

    def quiet_after(self, times: Times) -> Times:
        """Returns the first time at or after each at which the network was at rest."""
        quiets = np.append(self._quiets, NEVER)
        found: Times = quiets[np.minimum(np.searchsorted(self._quiets, times), len(self._quiets))]
        return found

    def _unheard(
        self, law: Lawbook, events: TopicEvents, missing: Indices, quiet: Times
    ) -> tuple[Mask, Mask]:
        """Returns where the address was not recorded, and where it fails on purpose."""
        unheard = np.zeros(len(missing), dtype=np.bool_)
        excused = np.zeros(len(missing), dtype=np.bool_)
        for state in law.states:
            if not state.alive or state.address is None:
                continue
            met = law.can_have_met(state, missing)
            if state.address in self._excused:
                excused |= met
            heard = np.zeros(len(missing), dtype=np.bool_)
            for begin, end in self._heard.get(state.address, ()):
                heard |= (events.low[missing] >= begin) & (quiet <= end)
            unheard |= met & ~heard
        return unheard, excused


def _may_end(life: Life, begin: int, end: int) -> bool:
    """Returns whether the subscription may have ended between these times."""
    if any(
        one.end >= begin and one.begin <= end
        for one in life.of("unsubscribe", "subscribe")
        if one.begin > begin
    ):
        return True
    leases = life.of("subscribe", "change", "renew")
    return any(one.expires[0] < NEVER and one.expires[0] <= end and one.expires[1] >= begin for one in leases)


def _heard(recording: Recording) -> dict[str, list[tuple[int, int]]]:
    """Returns the periods in which each address recorded its notifications."""
    found: dict[str, list[tuple[int, int]]] = {}
    for time, address, begins in sorted(recording.listening):
        spans = found.setdefault(address, [])
        if begins and (not spans or spans[-1][1] < NEVER):
            spans.append((time, NEVER))
        elif not begins and spans and spans[-1][1] == NEVER:
            spans[-1] = (spans[-1][0], time)
    return found
