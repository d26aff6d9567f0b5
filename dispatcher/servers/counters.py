"""Counters on the way of an event, from which the throughput model takes its parameters.

They are plain additions, a few a commit and a few a frame, not an event. Times are those of the loop's
thread on the CPU, so that waiting does not count. A sample of recent events is kept, a few of each commit,
for asking how other precisions would have routed them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dispatcher.routing.point_sample import Recent
from edn.arrays import Bools, Floats

#: recent events kept a topic, and how many of them one commit may replace
SAMPLE = 512
SAMPLE_OF_COMMIT = 64


@dataclass(slots=True)
class Counts:
    """Since the start. Seconds are CPU time."""

    #: events that were routed
    events: int = 0
    #: (event, server) pairs that were asked about, those that were to be sent, and the time that took
    asked: int = 0
    hits: int = 0
    routing: float = 0.0
    #: events in frames that were sent, their bytes, and the time to put them together
    copies: int = 0
    sent_bytes: int = 0
    sending: float = 0.0

    def since(self, before: Counts) -> Counts:
        return Counts(
            events=self.events - before.events,
            asked=self.asked - before.asked,
            hits=self.hits - before.hits,
            routing=self.routing - before.routing,
            copies=self.copies - before.copies,
            sent_bytes=self.sent_bytes - before.sent_bytes,
            sending=self.sending - before.sending,
        )


@dataclass(slots=True)
class PipelineCounters:
    """Written on the way of events, read once an interval. Event loop only."""

    counts: Counts = field(default_factory=Counts)
    #: topic → recent events, and how many events there were of it
    samples: dict[int, Recent] = field(default_factory=dict)
    by_topic: dict[int, int] = field(default_factory=dict)

    def snapshot(self) -> Counts:
        return replace(self.counts)

    def routed(self, topic: int, points: Floats, routed: Bools, seconds: float) -> None:
        """One commit's events of one topic were routed in that time."""
        counts = self.counts
        counts.events += len(points)
        counts.asked += routed.size
        counts.hits += int(np.count_nonzero(routed))
        counts.routing += seconds
        self.by_topic[topic] = self.by_topic.get(topic, 0) + len(points)
        sample = self.samples.get(topic)
        if sample is None or sample.width != points.shape[1]:
            self.samples[topic] = sample = Recent(points.shape[1], size=SAMPLE, of_batch=SAMPLE_OF_COMMIT)
        sample.add(points)

    def forget_topic(self, topic: int) -> None:
        """Forget the sample of a deleted topic."""
        self.samples.pop(topic, None)
        self.by_topic.pop(topic, None)

    def sent(self, copies: int, size: int, seconds: float) -> None:
        """One frame was put together in that time."""
        counts = self.counts
        counts.copies += copies
        counts.sent_bytes += size
        counts.sending += seconds

    def shares(self) -> dict[int, float]:
        """Topic → its share of the events since the last call."""
        total = sum(self.by_topic.values())
        shares = {topic: count / total for topic, count in self.by_topic.items()} if total else {}
        self.by_topic = {}
        return shares
