"""Makes one attempt at an address: signs the body, sends it, measures the time, records the attempt."""

from __future__ import annotations

import functools
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from edn.formats import webhooks
from edn.runtime import clock, tracing
from edn.runtime.ownership import owned
from edn_server.delivery.attempts import Attempt, Attempts, RecentBodies
from edn_server.sinks.base import Answer, Message, Sinks
from edn_server.sinks.profile import Profiles
from edn_server.storage.addresses import parts_of
from edn_server.subscriptions.view import RegistryView

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
_BOUNDS = (*_BUCKETS, math.inf)


@owned("any")
class Durations(Collector):
    """A Prometheus histogram that one thread observes; without locks, because every POST is observed."""

    def __init__(self, name: str, help: str) -> None:
        self._name = name
        self._help = help
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(_BUCKETS, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        totals = accumulate(list(self._counts))
        buckets = [(_label(bound), total) for bound, total in zip(_BOUNDS, totals, strict=True)]
        yield HistogramMetricFamily(self._name, self._help, buckets=buckets, sum_value=self._sum)


def _label(bound: float) -> str:
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]  # the library does not type it


@owned("any")
class Timings:
    """Histograms of deliveries (`observe.metrics`)."""

    def __init__(self) -> None:
        self.posts = Durations("edn_server_post_seconds", "Seconds that a sink took to answer an attempt.")
        self.deliveries = Durations(
            "edn_server_delivery_seconds", "Seconds from an event's match to the answer of an accepted POST."
        )


@dataclass(slots=True)
class Sent:
    address: str
    #: webhook-id
    name: str
    events: int
    answer: Answer
    #: seconds since 1970, and duration
    began: float
    seconds: float

    @property
    def is_accepted(self) -> bool:
        status = self.answer.status
        return status is not None and 200 <= status < 300


@owned("loop")
class Sender:
    def __init__(self, sinks: Sinks, view: RegistryView, profiles: Profiles, timings: Timings) -> None:
        self._sinks = sinks
        self._view = view
        self._profiles = profiles
        self._timings = timings
        self.attempts = Attempts()
        self.bodies = RecentBodies()

    async def send(
        self,
        address: str,
        name: str,
        body: bytes,
        events: int,
        trace: str = "",
        *,
        is_counted: bool = False,
    ) -> Sent:
        """Send a body under a webhook-id; a failure is part of the result.

        `is_counted`: the caller has counted the attempt for the rate of the sink's settings.
        """
        began, timer = clock.estimate(), time.perf_counter()
        spans = None
        if tracing.active is not None:
            spans = tracing.active.deliver(parts_of(address).host, body, trace, name)
            trace = spans.context
        message = self._message(address, name, body, events, trace, began)
        limiter = None if message.profile is None else message.profile.limiter
        if limiter is not None and not is_counted and (wait := limiter.take()):
            answer = Answer(None, reason="the rate of the sink's settings allows no more", pause=wait)
        else:
            answer = await self._sinks.send(message)
        if spans is not None:
            spans.end(answer.status, answer.reason)
        return self._sent(address, name, events, answer, began, timer)

    def begin(
        self,
        address: str,
        name: str,
        body: bytes,
        events: int,
        trace: str,
        on_sent: Callable[[Sent | None], None],
    ) -> bool:
        """Send at once if the sink can; `on_sent` gets None if the attempt must be repeated by `send`."""
        if tracing.active is not None:
            return False  # `send` makes the spans
        began, timer = clock.estimate(), time.perf_counter()

        def end(answer: Answer | None) -> None:
            on_sent(None if answer is None else self._sent(address, name, events, answer, began, timer))

        message = self._message(address, name, body, events, trace, began)
        if message.profile is not None and message.profile.limiter is not None:
            return False  # `send` counts it
        return self._sinks.begin(message, end)

    def _message(
        self, address: str, name: str, body: bytes, events: int, trace: str, began: float
    ) -> Message:
        self.bodies.add(name, body)
        parts = parts_of(address)
        ring = self._view.ring(parts.ring) if parts.ring else None
        sign = None
        if ring is not None:
            secrets = [ring.current] if ring.previous is None else ring.active_secrets(int(clock.now() * 1e6))
            sign = functools.partial(webhooks.signatures, secrets, int(began))
        profile = self._profiles.of(address) if parts.settings else None
        return Message(
            parts.url, name, int(began), body, sign, events, trace, tenant=parts.tenant, profile=profile
        )

    def _sent(self, address: str, name: str, events: int, answer: Answer, began: float, timer: float) -> Sent:
        seconds = time.perf_counter() - timer
        self._timings.posts.observe(seconds)
        return Sent(address, name, events, answer, began, seconds)

    def remember(self, sent: Sent, outcome: str, next_attempt: int | None = None) -> Attempt:
        """Record an attempt; `next_attempt` in microseconds, if one follows."""
        answer = sent.answer
        attempt = Attempt(
            time=int(sent.began * 1e6),
            webhook_id=sent.name,
            status=answer.status,
            reason=None if outcome == "delivered" else answer.reason,
            seconds=round(sent.seconds, 6),
            answer=answer.text,
            events=sent.events,
            outcome=outcome,
            next_attempt=next_attempt,
        )
        self.attempts.add(sent.address, attempt)
        return attempt
