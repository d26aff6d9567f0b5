"""Judges one subscription: its notifications against those that may and must arrive.

`LifeJudge` has the state that all subscriptions share; `judge` is called once per subscribed or notified id.
Explanations are made for violations only, one pair at a time: they may be slow.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from edn.tools.checker import standing
from edn.tools.checker.arrivals import ArrivalJudge, Notified
from edn.tools.checker.columns import Indices
from edn.tools.checker.doubts import CERTAIN, REASONS, Doubts
from edn.tools.checker.history import History, Life
from edn.tools.checker.obligations import Lawbook, Obligations, contains
from edn.tools.checker.published import TopicEvents
from edn.tools.checker.recording.reading import Recording
from edn.tools.checker.recording.records import RecordingError
from edn.tools.checker.stories import Stories
from edn.tools.checker.timeline import NEVER, SECOND, Mask
from edn.tools.checker.verdicts import Counts, Fault, Findings, Violation

TEXT_FILTER = "subscriptions whose filter is recorded as text only"
NAMELESS_SUBSCRIPTION = "notified subscriptions that may stem from an unanswered subscribe without an id"
NAMELESS_EVENT = "notified events that may stem from an unanswered publish without ids"


class LifeJudge:
    def __init__(
        self,
        recording: Recording,
        history: History,
        findings: Findings,
        stories: Stories,
        counts: Counts,
        bound: int | None,
    ) -> None:
        """`bound`: nanoseconds within which a notification must arrive; None for no limit."""
        self._recording = recording
        self._history = history
        self._findings = findings
        self._stories = stories
        self._counts = counts
        self._slack = round(recording.header.clock_tolerance * SECOND) if recording.header else 0
        self._events = np.frombuffer(recording.pair_event, dtype=np.int32)
        self._recipients = np.frombuffer(recording.pair_recipient, dtype=np.int32)
        self._posts = np.frombuffer(recording.pair_post, dtype=np.int32)
        posts = recording.posts
        self._post_times = np.array([post.time for post in posts], dtype=np.int64)
        self._post_accepted = np.array([post.accepted for post in posts], dtype=np.bool_)
        addresses: dict[str, int] = {}
        self._post_address = np.array(
            [addresses.setdefault(post.address, len(addresses)) for post in posts], dtype=np.int64
        )
        self._addresses = addresses
        self._topic_names = list(history.topics)
        # Per event number: its topic, -1 if it was never published, and its index there.
        count = len(recording.events.of)
        self._topic_of = np.full(count, -1, dtype=np.int32)
        self._index_of = np.zeros(count, dtype=np.intp)
        for place, events in enumerate(history.topics.values()):
            self._topic_of[events.numbers] = place
            self._index_of[events.numbers] = np.arange(len(events.numbers))
        self._doubts = Doubts(recording)
        self._arrivals = ArrivalJudge(recording, findings, self._doubts, self._explain, bound)

    def judge(self, name: str, rows: Indices) -> None:
        """Judges a subscription; `rows`: the places of its notified pairs."""
        life = self._history.lives.get(name)
        rows = rows[np.argsort(self._post_times[self._posts[rows]], kind="stable")]
        if life is None or not life.effects:
            self._stranger(name, rows, refused=life is not None)
            self._counts.notified += len(np.unique(self._events[rows]))
            return
        self._judge_answers(name, life)
        topics = self._topic_of[self._events[rows]]
        subscribed = {effect.topic for effect in life.effects if effect.alive}
        for place, topic in enumerate(self._topic_names):
            if topic in subscribed:
                self._judge_topic(name, life, topic, rows[topics == place])
            elif (topics == place).any():
                self._unexpected(name, rows[topics == place], "it is of a topic that was not subscribed")
                self._counts.notified += len(np.unique(self._events[rows[topics == place]]))
        self._unpublished(name, rows[topics < 0])
        self._counts.notified += len(np.unique(self._events[rows[topics < 0]]))

    # -- answers ----------------------------------------------------------------------------------------

    def _judge_answers(self, name: str, life: Life) -> None:
        """Compares answers with whether the subscription can have existed."""
        self._findings.add(
            Fault.ENDED,
            list(standing.ended(life, self._slack)),
            lambda place: self._stories.answer(
                Fault.ENDED,
                name,
                f"it was refused as unknown while it surely lived ({self._recording.where(place)})",
            ),
        )
        self._findings.add(
            Fault.REVIVED,
            list(standing.revived(life, self._slack)),
            lambda effect: self._stories.answer(
                Fault.REVIVED, name, f"a {effect.kind} of it was accepted after it surely had ended"
            ),
        )

    # -- unknown subscriptions and events ---------------------------------------------------------------

    def _stranger(self, name: str, rows: Indices, *, refused: bool) -> None:
        if refused:
            self._unexpected(name, rows, "its subscription was refused")
            return
        nameless = self._history.nameless_subscriptions
        for row in rows.tolist():
            topic, _ = self._stories.name(int(self._events[row]))
            address = self._recording.posts[self._posts[row]].address
            if (topic, address) in nameless or (topic, None) in nameless:
                self._findings.leave_open(NAMELESS_SUBSCRIPTION, 1)
            else:
                self._unexpected(name, np.array([row]), "no such subscription was ever asked for")

    def _unpublished(self, name: str, rows: Indices) -> None:
        for row in rows.tolist():
            event = int(self._events[row])
            if event in self._history.rejected:
                self._unexpected(name, np.array([row]), "every publish of this event was refused")
            elif self._stories.name(event)[0] in self._history.nameless_events:
                self._findings.leave_open(NAMELESS_EVENT, 1)
            else:
                self._unexpected(name, np.array([row]), "no such event was ever published")

    def _unexpected(self, name: str, rows: Indices, reason: str) -> None:
        """Reports one violation per event, for any number of repeats."""
        events, firsts = np.unique(self._events[rows], return_index=True)
        pairs = [
            (reason, int(event), int(self._posts[rows[first]]))
            for event, first in zip(events, firsts, strict=True)
        ]
        self._findings.add(Fault.UNEXPECTED, pairs, lambda pair: self._explain(Fault.UNEXPECTED, name, *pair))

    def _explain(self, fault: Fault, name: str, reason: str, event: int, *posts: int) -> Violation:
        return self._stories.pair(fault, reason, name, event, posts)

    # -- one topic of a subscription --------------------------------------------------------------------

    def _judge_topic(self, name: str, life: Life, topic: str, rows: Indices) -> None:
        events = self._history.topics[topic]
        try:
            law = Lawbook(life, topic, events, self._slack)
        except ValueError as error:
            where = self._recording.where(life.effects[0].places[0])
            raise RecordingError(f'the filter of "{name}" ({where}) cannot be read: {error}') from None
        seen = Notified(
            self._index_of[self._events[rows]],
            self._posts[rows].astype(np.intp),
            self._recipients[rows].astype(np.intp),
            self._post_times[self._posts[rows]],
            self._post_accepted[self._posts[rows]],
        )
        notified = np.unique(seen.events)
        accepted, _ = seen.first_accepted()
        obligations = law.judge(
            notified, lambda unseen: self._doubts.about(life, law, events, unseen) == CERTAIN
        )
        due = obligations.due()
        self._counts.due += len(due)
        self._counts.notified += len(notified)
        self._counts.optional += int(
            (contains(obligations.allowed(), notified) & ~contains(due, notified)).sum()
        )
        if law.opaque:
            self._findings.leave_open(TEXT_FILTER, 1)
        self._judge_presence(name, life, law, events, obligations, seen)
        self._judge_missing(name, life, law, events, due[~contains(accepted, due)], seen)
        self._counts.repeats += self._arrivals.judge(name, life, events, seen)

    def _judge_presence(
        self,
        name: str,
        life: Life,
        law: Lawbook,
        events: TopicEvents,
        obligations: Obligations,
        seen: Notified,
    ) -> None:
        """Finds notifications that must not exist."""
        if not len(seen.events):
            return
        allowed = contains(obligations.allowed(), seen.events)
        wrong = ~allowed | (seen.times < events.low[seen.events])
        misled = ~wrong & ~self._well_addressed(life, law, events, seen)
        paused = np.zeros(len(wrong), dtype=np.bool_)
        resumes = life.of("resume", "subscribe")
        for pause in life.of("pause"):
            if pause.sure:
                release = min((one.begin for one in resumes if one.end >= pause.begin), default=NEVER)
                paused |= (events.low[seen.events] > pause.end) & (seen.times < release)
        paused &= ~wrong & ~misled
        for mask, why in ((wrong, ""), (misled, "to another address or recipient"), (paused, "while paused")):
            found, first = np.unique(seen.events[mask], return_index=True)
            pairs = list(zip(found.tolist(), seen.posts[mask][first].tolist(), strict=True))
            self._findings.add(
                Fault.UNEXPECTED, pairs, partial(self._explain_unexpected, name, life, law, events, why)
            )

    def _explain_unexpected(
        self, name: str, life: Life, law: Lawbook, events: TopicEvents, why: str, pair: tuple[int, int]
    ) -> Violation:
        event, post = pair
        reason = f"it was notified {why}" if why else self._why_not(life, law, events, event, post)
        return self._explain(Fault.UNEXPECTED, name, reason, int(events.numbers[event]), post)

    def _well_addressed(self, life: Life, law: Lawbook, events: TopicEvents, seen: Notified) -> Mask:
        """Returns whether some state that the event can have met has the used address and recipient."""
        first_pause = min((pause.begin for pause in life.of("pause")), default=NEVER)
        held = events.high[seen.events] >= first_pause
        well = np.zeros(len(seen.events), dtype=np.bool_)
        states = [state for state in law.states if state.alive]
        alike = len({(state.address, state.recipient) for state in states}) == 1
        for state in states:
            right = np.ones(len(seen.events), dtype=np.bool_)
            if state.address is not None:
                right &= self._post_address[seen.posts] == self._addresses.get(state.address, -1)
                right &= seen.recipients == self._recording.recipients.of.get(state.recipient, -1)
            if not alike:
                right &= law.can_have_delivered(state, seen.events, seen.times, held)
            well |= right
        return well

    def _why_not(self, life: Life, law: Lawbook, events: TopicEvents, event: int, post: int) -> str:
        low, high = int(events.low[event]), int(events.high[event])
        if self._recording.posts[post].time < low:
            return "it was notified before it was published"
        one = np.array([event])
        alive = [state for state in law.states if state.alive]
        met = [state for state in alive if law.can_have_met(state, one)[0]]
        if met:
            if not any(law.matches(state, one)[0] for state in met):
                return "the filter does not match it"
            if all(
                low - self._slack >= state.expires[1] for state in life.of("subscribe", "change", "renew")
            ):
                return "it was published after the subscription had expired"
            return "no order of what else was notified and the operations allows it"
        if all(high < state.begin for state in alive):
            return "it was published before the subscription was asked for"
        return "it was published after the subscription, or this filter of it, had ended"

    # -- missing notifications --------------------------------------------------------------------------

    def _judge_missing(
        self, name: str, life: Life, law: Lawbook, events: TopicEvents, missing: Indices, seen: Notified
    ) -> None:
        """Finds due notifications that were not accepted, if the recording is conclusive."""
        if not len(missing):
            return
        doubts = self._doubts.about(life, law, events, missing)
        for doubt, reason in REASONS.items():
            if (doubts == doubt).any():
                self._findings.leave_open(reason, int((doubts == doubt).sum()))
        self._findings.add(
            Fault.MISSING,
            missing[doubts == CERTAIN].tolist(),
            lambda event: self._explain(
                Fault.MISSING,
                name,
                "it was due and never accepted"
                + (", only refused" if (tried := seen.posts[seen.events == event].tolist()) else ""),
                int(events.numbers[event]),
                *tried,
            ),
        )
