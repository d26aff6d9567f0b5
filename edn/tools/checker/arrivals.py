"""Judges how notifications arrived: once, in time, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edn.tools.checker.columns import Indices
from edn.tools.checker.doubts import Doubts
from edn.tools.checker.history import Life
from edn.tools.checker.published import TopicEvents
from edn.tools.checker.recording.reading import Recording
from edn.tools.checker.timeline import NEVER, SECOND, Mask, Times
from edn.tools.checker.verdicts import Fault, Findings, Violation

#: explains a fault of a subscription: reason, event number, POSTs
Explain = Callable[..., Violation]


@dataclass(frozen=True, slots=True)
class Notified:
    """Notifications of one subscription in one topic, in the order of arrival."""

    #: index of the event in its topic
    events: Indices
    posts: Indices
    recipients: Indices
    times: Times
    accepted: Mask

    def first_accepted(self) -> tuple[Indices, Indices]:
        """Returns the accepted events, ascending, and the row of each first acceptance."""
        rows = np.flatnonzero(self.accepted)
        events, firsts = np.unique(self.events[rows], return_index=True)
        return events, rows[firsts]


class ArrivalJudge:
    def __init__(
        self, recording: Recording, findings: Findings, doubts: Doubts, explain: Explain, bound: int | None
    ) -> None:
        """`bound`: nanoseconds within which a notification must arrive; None for no limit."""
        self._findings = findings
        self._doubts = doubts
        self._explain = explain
        self._bound = bound
        self._at_rest = bool(recording.quiets)
        webhooks: dict[str, int] = {}
        self._post_webhook = np.array(
            [webhooks.setdefault(post.webhook, len(webhooks)) for post in recording.posts], dtype=np.int64
        )

    def judge(self, name: str, life: Life, events: TopicEvents, seen: Notified) -> int:
        """Judges the arrivals and returns the number of permitted repeats."""
        accepted, firsts = seen.first_accepted()
        self._judge_lateness(name, life, events, accepted, seen, firsts)
        self._judge_order(name, events, accepted, seen, firsts)
        return self._judge_minimality(name, events, seen, len(accepted))

    def _judge_minimality(self, name: str, events: TopicEvents, seen: Notified, accepted: int) -> int:
        """Finds duplicates and returns the number of permitted repeats."""
        rows = np.flatnonzero(seen.accepted)
        if len(rows) == accepted:
            return 0  # nothing was accepted twice
        webhooks = self._post_webhook[seen.posts[rows]]
        by_webhook = np.unique(np.stack([seen.events[rows], webhooks]), axis=1)[0]
        by_post = np.stack([seen.events[rows], seen.posts[rows]])
        _, in_one = np.unique(by_post, axis=1, return_counts=True)
        twice_inside = np.unique(by_post, axis=1)[0][in_one > 1]
        found, counts = np.unique(by_webhook, return_counts=True)
        several = np.union1d(found[counts > 1], twice_inside)
        self._findings.add(
            Fault.DUPLICATE,
            several.tolist(),
            lambda event: self._explain(
                Fault.DUPLICATE,
                name,
                "it was notified under two webhook-ids"
                if len(np.unique(webhooks[seen.events[rows] == event])) > 1
                else "it stands twice in one POST",
                int(events.numbers[event]),
                *seen.posts[rows][seen.events[rows] == event].tolist(),
            ),
        )
        return len(rows) - len(by_webhook)

    def _judge_lateness(
        self, name: str, life: Life, events: TopicEvents, accepted: Indices, seen: Notified, firsts: Indices
    ) -> None:
        if not len(accepted) or (self._bound is None and not self._at_rest):
            return
        times = seen.times[firsts]
        since = events.answered[accepted].copy()
        since = np.maximum(since, min((one.end for one in life.of("subscribe")), default=NEVER))
        for effect in life.of("resume"):
            since = np.where(effect.begin <= times, np.maximum(since, effect.end), since)
        late = times > self._doubts.quiet_after(since)
        if self._bound is not None:
            late |= times - since > self._bound
        self._findings.add(
            Fault.LATE,
            np.flatnonzero(late).tolist(),
            lambda place: self._explain(
                Fault.LATE,
                name,
                f"it came {(times[place] - since[place]) / SECOND:.3f} s after it was answered",
                int(events.numbers[accepted[place]]),
                int(seen.posts[firsts[place]]),
            ),
        )

    def _judge_order(
        self, name: str, events: TopicEvents, accepted: Indices, seen: Notified, firsts: Indices
    ) -> None:
        """Finds events that arrived after one that was published after their answer."""
        arrival = np.argsort(firsts, kind="stable")
        order = accepted[arrival]
        streams = events.stream[order]
        for stream in np.unique(streams[streams >= 0]).tolist():
            mine = np.flatnonzero(streams == stream)
            low, high = events.low[order[mine]], events.high[order[mine]]
            latest = np.maximum.accumulate(low)
            late = mine[np.flatnonzero(high[1:] < latest[:-1]) + 1]
            self._findings.add(
                Fault.OUT_OF_ORDER,
                late.tolist(),
                lambda place: self._explain(
                    Fault.OUT_OF_ORDER,
                    name,
                    "it arrived after an event that was published later",
                    int(events.numbers[order[place]]),
                    int(seen.posts[firsts[arrival[place]]]),
                ),
            )
