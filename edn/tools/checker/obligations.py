"""Decides which events a subscription may, must and must not receive: the core of the check.

For one subscription and the events of one topic, `Obligations` has the events that some possible filter
matches and, for each, whether it **may** be notified (at least one state that it can have met matches it) and
whether it **must** be (every state that it can have met matches it, and it was certainly accepted).

Observations narrow the possible states. A notification that only the state after X explains proves that X
precedes the event's place, and that no operation which certainly followed X does. A missing notification
proves the same, if only the state after X excuses it. So a subscription with an unanswered request must get
every event after one that it got, in the same log. One log proves nothing about another, so each dispatcher
is narrowed separately, and events without a recorded dispatcher are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from edn.tools.checker.columns import Indices
from edn.tools.checker.history import Life
from edn.tools.checker.published import TopicEvents
from edn.tools.checker.timeline import NEVER, NOTHING, Effect, Mask, Times, can_meet, lasts


@dataclass(frozen=True, slots=True)
class Obligations:
    #: ascending indices of events
    events: Indices
    may: Mask
    must: Mask

    def allowed(self) -> Indices:
        return self.events[self.may]

    def due(self) -> Indices:
        return self.events[self.must]


class Lawbook:
    """The states of one subscription."""

    def __init__(self, life: Life, topic: str, events: TopicEvents, slack: int) -> None:
        """`slack`: tolerance of the network's clock in nanoseconds. An invalid filter raises ValueError."""
        self._events = events
        self._slack = slack
        self.states: list[Effect] = [NOTHING, *life.of("subscribe", "change", "unsubscribe")]
        self.states = [
            effect if not effect.alive or effect.topic == topic else replace(effect, kind="unsubscribe")
            for effect in self.states
        ]
        self._renewals = life.of("subscribe", "change", "renew")
        self._matching = self._select()
        found = [part for part in self._matching.values() if len(part)]
        if len(found) == 1:
            self.candidates = found[0]
        else:
            self.candidates = np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.intp)
        self.opaque = any(isinstance(effect.filter, str) for effect in self.states if effect.alive)

    def _select(self) -> dict[bytes, Indices]:
        """Returns for each filter the matching events among those that can have met it."""
        events = self._events
        spans: dict[bytes, tuple[Effect, int, int]] = {}
        for effect, last in zip(self.states, lasts(self.states), strict=True):
            if not effect.alive:
                continue
            begin = 0 if events.any_kept else int(np.searchsorted(events.highest, effect.begin))
            end = int(np.searchsorted(events.low, last, side="right"))
            key = _key(effect)
            _, low, high = spans.get(key, (effect, begin, end))
            spans[key] = (effect, min(begin, low), max(end, high))
        found: dict[bytes, Indices] = {}
        for key, (effect, begin, end) in spans.items():
            begin = min(begin, end)
            if isinstance(effect.filter, str):
                found[key] = np.arange(begin, end)
                continue
            found[key] = events.columns.matching(effect.filter, begin, end)
            unclear = events.unclear[(events.unclear >= begin) & (events.unclear < end)]
            if len(unclear):
                found[key] = np.union1d(found[key], unclear)
        return found

    def matches(self, effect: Effect, events: Indices) -> Mask:
        """Returns which of the candidates the filter of a state matches."""
        return contains(self._matching[_key(effect)], events)

    def can_have_met(self, effect: Effect, events: Indices) -> Mask:
        """Returns which events this state may have notified, by time alone."""
        last = lasts(self.states)[self.states.index(effect)]
        return (self._events.kept_at_most[events] >= effect.begin) & (self._events.low[events] <= last)

    def can_have_delivered(self, effect: Effect, events: Indices, times: Times, held: Mask) -> Mask:
        """Returns which events may have been delivered at those times to the sink of this state.

        Notifications buffered by a pause and replayed ones go to the sink at the time of delivery.
        """
        book = self._events
        last = lasts(self.states)[self.states.index(effect)]
        later = (held | (book.kept_at_most[events] > book.high[events])) & (times >= effect.begin)
        return ((book.kept_at_most[events] >= effect.begin) | later) & (book.low[events] <= last)

    def judge(self, notified: Indices, surely_missed: Callable[[Indices], Mask]) -> Obligations:
        """Returns the obligations. `notified`: the events notified to this subscription, ascending.

        `surely_missed` returns which of some events certainly were not and never will be.
        """
        candidates = self.candidates
        may, must, explained, _ = self._weigh(self.states, candidates)
        if (may & ~must).any():
            notified_here = contains(notified, candidates)
            missed = np.zeros(len(candidates), dtype=np.bool_)
            missed[~notified_here] = surely_missed(candidates[~notified_here])
            vias = self._events.via[candidates]
            for via in np.unique(vias[(vias >= 0) & (notified_here | missed)]):
                here = vias == via
                # Notifications first: if they contradict missing ones, the latter are violations.
                states = self._narrowed(
                    self.states, candidates[here], np.where(notified_here, explained, -1)[here]
                )
                *_, excused = self._weigh(states, candidates[here])
                states = self._narrowed(states, candidates[here], np.where(missed[here], excused, -1))
                may[here], must[here], _, _ = self._weigh(states, candidates[here])
        return Obligations(candidates, may, must)

    def _weigh(self, states: Sequence[Effect], events: Indices) -> tuple[Mask, Mask, Indices, Indices]:
        """Returns may, must, and the only state that explains a notification or excuses its lack, or -1."""
        book = self._events
        low, high = book.low[events], book.high[events]
        may = np.zeros(len(events), dtype=np.bool_)
        counter = np.zeros(len(events), dtype=np.bool_)
        explained = np.full(len(events), -1, dtype=np.intp)
        excused = np.full(len(events), -1, dtype=np.intp)
        for place, (effect, last) in enumerate(zip(states, lasts(states), strict=True)):
            against = can_meet(effect, last, low, high)
            if effect.alive:
                hit = self.matches(effect, events)
                # A new subscription also gets retained events; a changed one does not.
                reachable = high if effect.kind == "change" else book.kept_at_most[events]
                reached = (reachable >= effect.begin) & (low <= last) & hit
                against |= (high < effect.begin) & (reachable >= effect.begin)
                explained = np.where(reached, np.where(may, -1, place), explained)
                may |= reached
                if not isinstance(effect.filter, str):  # the matches of a text are unknown
                    against &= ~hit
            elif effect.kind == "none" and book.any_kept:
                first = min((one.end for one in states if one.alive and one.sure), default=NEVER)
                against &= ~((book.kept[events] > low) & (book.kept[events] > first))
            excused = np.where(against, np.where(counter, -1, place), excused)
            counter |= against
        lasting, ending = self._unexpired(events)
        unclear = ending | book.ambiguous[events] | ~book.sure[events]
        explained[unclear | (book.kept_at_most[events] > high)] = -1
        excused[unclear | (book.kept_at_most[events] > high)] = -1
        may &= lasting
        return may, may & ~counter & ~unclear, explained, excused

    def _unexpired(self, events: Indices) -> tuple[Mask, Mask]:
        """Returns which events may precede the expiry, and which may follow it."""
        lasting = np.zeros(len(events), dtype=np.bool_)
        ending = np.zeros(len(events), dtype=np.bool_)
        low, high = self._events.low[events], self._events.high[events]
        for effect, last in zip(self._renewals, lasts(self._renewals), strict=True):
            earliest, latest = effect.expires
            met = can_meet(effect, last, low, high) | (self._events.kept_at_most[events] > high)
            lasting |= met & (low - self._slack < latest)
            ending |= met & (high + self._slack >= earliest)
        return lasting, ending

    def _narrowed(self, states: Sequence[Effect], events: Indices, met: Indices) -> list[Effect]:
        """Returns the states with narrower times, given the state that each event met (-1: unknown)."""
        begins = [effect.begin for effect in states]
        ends = [effect.end for effect in states]
        sure = [effect.sure for effect in states]
        for place in np.unique(met[met >= 0]).tolist():
            mine = events[met == place]
            ends[place] = min(ends[place], int(self._events.high[mine].min()))
            sure[place] = True
            for other, effect in enumerate(states):
                if effect.begin > states[place].end:
                    begins[other] = max(begins[other], int(self._events.low[mine].max()))
        return [
            # If two contradict each other, the earlier end stays: one of them will be a violation.
            replace(effect, begin=begin if begin <= end else effect.begin, end=end, sure=known)
            for effect, begin, end, known in zip(states, begins, ends, sure, strict=True)
        ]


def _key(effect: Effect) -> bytes:
    return msgspec.json.encode(effect.filter)


def contains(sorted_events: Indices, events: Indices) -> Mask:
    """Returns which events are among the sorted ones."""
    if not len(sorted_events):
        return np.zeros(len(events), dtype=np.bool_)
    places = np.minimum(np.searchsorted(sorted_events, events), len(sorted_events) - 1)
    found: Mask = sorted_events[places] == events
    return found
