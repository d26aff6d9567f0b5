"""Judges the sequences of a recording.

Theory of operation
-------------------
The order in which a server looks at events decides what completes a sequence. An observer knows it only where
the intervals of events do not overlap (`published`) and one dispatcher has accepted all of them. For each
subscription and each value of `by`, the candidates are followed in that order, with every half match that is
possible: a candidate near a change of the subscription may have been looked at or not, and a time near
`within` may have been exceeded or not.

    completed in every case, and not accepted        missing, if the recording is conclusive
    completed in no case, and notified               unexpected
    notified under two webhook-ids                   duplicate
    an event in two complete sequences               unexpected

The subscription begins and ends once: of the candidates near its beginning, the later ones were looked at if
an earlier one was; near its end it is the other way round.

A key with candidates in an unknown order, or with a publish of unknown outcome, is undecided from there on;
such keys are counted, as no recording could decide them.
The events of a notified sequence must always match their steps, in one key, and in a possible order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from edn.tools.checker.doubts import CERTAIN, REASONS, Doubts
from edn.tools.checker.history import History, Life
from edn.tools.checker.published import TopicEvents
from edn.tools.checker.recording.reading import Operation, Recording
from edn.tools.checker.recording.records import Ok
from edn.tools.checker.stories import Stories
from edn.tools.checker.timeline import NEVER, NOTHING, SECOND, Effect, lasts
from edn.tools.checker.values import duration, microseconds
from edn.tools.checker.verdicts import Counts, Fault, Findings

MIXED = "subscriptions that change between a filter and a sequence"
#: possible half matches that are followed at once
MOST_CASES = 64

Tuple = tuple[int, ...]


def has_sequence(life: Life | None) -> bool:
    return life is not None and any(effect.sequence is not None for effect in life.effects)


class _Seen(NamedTuple):
    post: int
    events: Tuple


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An event that matches a step or an unless."""

    number: int
    low: int
    high: int
    sure: bool
    via: int
    #: place of its request, and its place in there
    request: int
    position: int
    #: microseconds that the publisher chose
    stamp: int | None
    steps: frozenset[int]
    enders: frozenset[int]
    #: whether the subscription had surely begun before it, and surely ended after it
    begun: bool
    lasting: bool


_BEFORE, _WITHIN, _AFTER = range(3)
#: a possible case: life of the subscription, half match, and the sequences completed so far
_Case = tuple[int, tuple[_Candidate, ...], frozenset[Tuple]]


def judge_sequences(
    recording: Recording, history: History, findings: Findings, stories: Stories, counts: Counts
) -> None:
    """Judges all sequences of a recording."""
    seen: dict[int, list[_Seen]] = defaultdict(list)
    for post_number, post in enumerate(recording.posts):
        for subscription, _, events in post.complete:
            seen[subscription].append(_Seen(post_number, events))
    judge = _SequenceJudge(recording, history, findings, stories, counts)
    for name, life in history.lives.items():
        number = recording.subscriptions.of.get(name)
        if has_sequence(life):
            judge.judge(name, life, seen.pop(-1 if number is None else number, []))
    names = recording.subscriptions.all()
    for number, rest in seen.items():
        judge.refuse(names[number], len(rest))


class _SequenceJudge:
    def __init__(
        self, recording: Recording, history: History, findings: Findings, stories: Stories, counts: Counts
    ) -> None:
        self._recording = recording
        self._history = history
        self._findings = findings
        self._stories = stories
        self._counts = counts
        self._slack = round(recording.header.clock_tolerance * SECOND) if recording.header else 0
        self._doubts = Doubts(recording)
        self._names = recording.events.all()

    def refuse(self, name: str, count: int) -> None:
        """Reports notified sequences of a subscription that is no sequence."""
        if name in self._history.lives:
            self._report(Fault.UNEXPECTED, name, [f"{count} sequences were notified, but it is none"])

    def judge(self, name: str, life: Life, seen: list[_Seen]) -> None:
        posts = self._recording.posts
        effects = [NOTHING, *life.of("subscribe", "change", "unsubscribe")]
        if any(effect.alive and effect.sequence is None for effect in effects):
            self._findings.leave_open(MIXED, 1)
            return
        accepted = {one.events for one in seen if posts[one.post].accepted}
        self._counts.sequences += len(accepted)
        self._judge_minimality(name, seen)
        must: dict[Tuple, Effect] = {}
        allowed: set[Tuple] = set()
        undecided: set[int] = set()
        for effect, last in zip(effects, lasts(effects), strict=True):
            if effect.alive:
                due, possible, open_events = self._follow(life, effects, effect, last)
                must |= dict.fromkeys(due, effect)
                allowed |= possible
                undecided |= open_events
        self._counts.sequences_due += len(must)
        wrong = {
            one.events
            for one in seen
            if one.events not in allowed
            and (undecided.isdisjoint(one.events) or not self._is_plausible(effects, one.events))
        }
        self._report(
            Fault.UNEXPECTED, name, [f"nothing completes {self._spell(events)}" for events in sorted(wrong)]
        )
        missing = []
        for events, effect in must.items():
            if events in accepted:
                continue
            doubt = self._doubts.about_address(life, effect.address, *self._span(events))
            if doubt == CERTAIN:
                missing.append(f"{self._spell(events)} was due and never accepted")
            elif doubt in REASONS:
                self._findings.leave_open(REASONS[doubt], 1)
        self._report(Fault.MISSING, name, missing)

    def _judge_minimality(self, name: str, seen: list[_Seen]) -> None:
        webhooks: dict[Tuple, set[str]] = defaultdict(set)
        users: dict[int, set[Tuple]] = defaultdict(set)
        for one in seen:
            post = self._recording.posts[one.post]
            if post.accepted:
                webhooks[one.events].add(post.webhook)
            for event in one.events:
                users[event].add(one.events)
        twice = [events for events, ids in webhooks.items() if len(ids) > 1]
        self._report(
            Fault.DUPLICATE, name, [f"{self._spell(events)} came under two webhook-ids" for events in twice]
        )
        shared = [event for event, tuples in users.items() if len(tuples) > 1]
        self._report(
            Fault.UNEXPECTED, name, [f"event {self._names[event][1]} is in two sequences" for event in shared]
        )

    # -- candidates -------------------------------------------------------------------------------------

    def _follow(
        self, life: Life, effects: list[Effect], effect: Effect, last: int
    ) -> tuple[set[Tuple], set[Tuple], set[int]]:
        """Returns the sequences that must and that may be complete, and the events that are undecided."""
        assert effect.sequence is not None
        written = effect.sequence
        following = min(
            (one.begin for one in effects if one is not effect and one.begin >= effect.begin), default=NEVER
        )
        expiry = min((one.expires[0] for one in life.of("subscribe", "change", "renew")), default=NEVER)
        until = min(following, expiry - self._slack)
        slots = [place for place, step in enumerate(written["sequence"]) for _ in range(step.get("times", 1))]
        within = None if written.get("within") is None else duration(written["within"])
        must: set[Tuple] = set()
        may: set[Tuple] = set()
        undecided: set[int] = set()
        for key, found in self._keys(written, effect, last, until).items():
            del key
            due, possible, rest = self._run(found, slots, within)
            must |= due
            may |= possible
            undecided |= rest
        return must, may, undecided

    def _keys(
        self, written: Mapping[str, Any], effect: Effect, last: int, until: int
    ) -> dict[tuple[Any, ...], list[_Candidate]]:
        roles: dict[tuple[str, int], tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
        for place, step in enumerate(written["sequence"]):
            parts = [(0, step)]
            if step.get("unless") is not None:
                parts.append((1, {"topic": step["topic"], **step["unless"]}))
            for kind, part in parts:
                events = self._history.topics[part["topic"]]
                begin = int(np.searchsorted(events.highest, effect.begin))
                end = max(begin, int(np.searchsorted(events.low, last, side="right")))
                for index in events.columns.matching(part.get("filter"), begin, end).tolist():
                    roles[part["topic"], index][kind].add(place)
        keys: dict[tuple[Any, ...], list[_Candidate]] = defaultdict(list)
        for (topic, index), (steps, enders) in roles.items():
            events = self._history.topics[topic]
            low, high = int(events.low[index]), int(events.high[index])
            if high < effect.begin or low > last:
                continue
            publishing = events.publishings[index]
            by = written.get("by") or ()
            if any(name not in publishing.values for name in by):
                continue
            begun, lasting = effect.sure and low > effect.end, high < until
            name = self._names[int(events.numbers[index])][1]
            candidate = _candidate(events, index, name, frozenset(steps), frozenset(enders), begun, lasting)
            keys[tuple(publishing.values[name] for name in by)].append(candidate)
        for found in keys.values():
            found.sort(key=lambda one: (one.low, one.request, one.position))
        return keys

    # -- monitors ---------------------------------------------------------------------------------------

    def _run(
        self, found: list[_Candidate], slots: list[int], within: int | None
    ) -> tuple[set[Tuple], set[Tuple], set[int]]:
        """Follows the candidates of one key; see `_follow`."""
        stamped = {one.stamp is not None for one in found}
        if len({one.via for one in found}) > 1 or len(stamped) > 1:
            self._counts.sequences_open += 1
            return set(), set(), {one.number for one in found}
        cases: set[_Case] = {(_BEFORE, (), frozenset())}
        for place, one in enumerate(found):
            after = found[place + 1] if place + 1 < len(found) else None
            certain = after is None or one.request == after.request or one.high < after.low
            if not one.sure or not certain or len(cases) > MOST_CASES:
                self._counts.sequences_open += 1
                done = frozenset.intersection(*(complete for _, _, complete in cases))
                possible = frozenset.union(*(complete for _, _, complete in cases))
                open_events = {later.number for later in found[place:]}
                open_events |= {taken.number for _, half, _ in cases for taken in half}
                return set(done), set(possible), open_events
            following: set[_Case] = set()
            for case in cases:
                phase = case[0]
                if phase == _BEFORE and not one.begun:
                    following.add(case)
                if phase == _AFTER or not one.lasting:
                    following.add((_AFTER, *case[1:]))
                if phase != _AFTER:
                    following |= set(self._advance(case, one, slots, within))
            cases = following
        done = frozenset.intersection(*(complete for _, _, complete in cases))
        return set(done), set(frozenset.union(*(complete for _, _, complete in cases))), set()

    def _advance(self, case: _Case, one: _Candidate, slots: list[int], within: int | None) -> Iterator[_Case]:
        _, half, complete = case
        if half and within is not None:
            least, most = self._elapsed(half[0], one)
            if most > within:
                yield from self._take((), complete, one, slots)
            if least > within:
                return
        yield from self._take(half, complete, one, slots)

    def _take(
        self, half: tuple[_Candidate, ...], complete: frozenset[Tuple], one: _Candidate, slots: list[int]
    ) -> Iterator[_Case]:
        if half:
            if one.stamp is not None and half[-1].stamp is not None and one.stamp <= half[-1].stamp:
                yield _WITHIN, half, complete
                return
            awaited = slots[len(half)]
            if awaited in one.steps:
                taken = (*half, one)
                if len(taken) == len(slots):
                    yield _WITHIN, (), complete | {tuple(event.number for event in taken)}
                else:
                    yield _WITHIN, taken, complete
                return
            if awaited not in one.enders:
                yield _WITHIN, half, complete
                return
        yield _WITHIN, ((one,) if 0 in one.steps else ()), complete

    def _elapsed(self, first: _Candidate, one: _Candidate) -> tuple[int, int]:
        """Returns the least and the most nanoseconds from one event to another."""
        if first.stamp is not None and one.stamp is not None:
            return (one.stamp - first.stamp) * 1000, (one.stamp - first.stamp) * 1000
        return one.low - first.high - self._slack, one.high - first.low + self._slack

    # -- reports ----------------------------------------------------------------------------------------

    def _is_plausible(self, effects: list[Effect], events: Tuple) -> bool:
        """Returns whether the events match the steps of some state, in one key and a possible order."""
        return any(
            self._fits(effect.sequence, events)
            for effect in effects
            if effect.alive and effect.sequence is not None
        )

    def _fits(self, written: Mapping[str, Any], events: Tuple) -> bool:
        steps = [step for step in written["sequence"] for _ in range(step.get("times", 1))]
        if len(steps) != len(events):
            return False
        keys, earlier = set(), -NEVER
        for step, number in zip(steps, events, strict=True):
            topic, _ = self._names[number]
            found = self._history.topics.get(topic)
            index = None if found is None else found.index.get(number)
            if found is None or index is None or topic != step["topic"]:
                return False
            if index not in found.columns.matching(step.get("filter"), index, index + 1):
                return False
            values = found.publishings[index].values
            keys.add(tuple(values.get(name) for name in written.get("by") or ()))
            if int(found.high[index]) < earlier:
                return False
            earlier = max(earlier, int(found.low[index]))
        return len(keys) == 1

    def _span(self, events: Tuple) -> tuple[int, int]:
        """Returns the earliest time of the first event, and the latest of the last."""
        found = []
        for number in events:
            topic = self._history.topics[self._names[number][0]]
            index = topic.index[number]
            found.append((int(topic.low[index]), int(topic.high[index])))
        return min(low for low, _ in found), max(high for _, high in found)

    def _spell(self, events: Tuple) -> str:
        return " · ".join(self._names[event][1] for event in events)

    def _report(self, fault: Fault, name: str, reasons: list[str]) -> None:
        self._findings.add(fault, reasons, lambda reason: self._stories.answer(fault, name, reason))


def _candidate(
    events: TopicEvents,
    index: int,
    name: str,
    steps: frozenset[int],
    enders: frozenset[int],
    begun: bool,
    lasting: bool,
) -> _Candidate:
    publishing = events.publishings[index]
    attempt = publishing.hopeful[0]
    stamp = publishing.given.get("$time")
    return _Candidate(
        int(events.numbers[index]),
        int(events.low[index]),
        int(events.high[index]),
        bool(events.sure[index]) and not bool(events.ambiguous[index]),
        int(events.via[index]),
        attempt.place,
        _position(attempt, name),
        microseconds(stamp) if isinstance(stamp, str) else None,
        steps,
        enders,
        begun,
        lasting,
    )


def _position(attempt: Operation, name: str) -> int:
    """Returns the place of an event in its request."""
    invoke, answer = attempt.invoke, attempt.answer
    for place, event in enumerate(invoke.events):
        if event.get("$id") == name or (invoke.key is not None and name == f"{invoke.key}/{place}"):
            return place
    ids = answer.ids if isinstance(answer, Ok) else None
    return ids.index(name) if ids and name in ids else 0
