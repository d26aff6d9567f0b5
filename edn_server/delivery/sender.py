"""One attempt at an address: signed with the secrets that count, sent, timed, remembered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from prometheus_client import Histogram

from edn.formats import webhooks
from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.delivery.attempts import Attempt, Attempts
from edn_server.sinks.base import Answer, Message, Sinks
from edn_server.storage.addresses import ring_of, tenant_of, url_of
from edn_server.subscriptions.view import RegistryView

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)


@owned("any")
class Timings:
    """How long deliveries take, as histograms: one addition per POST (`observe.metrics`)."""

    def __init__(self) -> None:
        self.posts = Histogram(
            "edn_server_post_seconds",
            "How long a sink took to answer an attempt.",
            buckets=_BUCKETS,
            registry=None,
        )
        self.deliveries = Histogram(
            "edn_server_delivery_seconds",
            "From an event's match to its sink's answer, of POSTs that were taken.",
            buckets=_BUCKETS,
            registry=None,
        )


@dataclass(frozen=True, slots=True)
class Sent:
    address: str
    #: webhook-id
    name: str
    events: int
    answer: Answer
    #: seconds since 1970, and how long it took
    began: float
    seconds: float


@owned("loop")
class Sender:
    """Event loop only."""

    def __init__(self, sinks: Sinks, view: RegistryView, timings: Timings) -> None:
        self._sinks = sinks
        self._view = view
        self._timings = timings
        self.attempts = Attempts()

    async def send(self, address: str, name: str, body: bytes, events: int, trace: str = "") -> Sent:
        began, timer = clock.estimate(), asyncio.get_running_loop().time()
        ring = self._view.ring(ring_of(address))
        counting = ring.active_secrets(int(clock.now() * 1e6)) if ring is not None else []

        def sign(name: str, body: bytes) -> str:
            return webhooks.signatures(counting, name, int(began), body)

        answer = await self._sinks.send(
            Message(
                url_of(address),
                name,
                int(began),
                body,
                sign(name, body) if counting else None,
                events=events,
                trace=trace,
                sign=sign if counting else None,
                tenant=tenant_of(address),
            )
        )
        seconds = asyncio.get_running_loop().time() - timer
        self._timings.posts.observe(seconds)
        return Sent(address, name, events, answer, began, seconds)

    def remember(self, sent: Sent, outcome: str, next_attempt: int | None = None) -> Attempt:
        """Keep it as evidence; `next_attempt`: microseconds, if there will be one."""
        answer = sent.answer
        taken = answer.status is not None and 200 <= answer.status < 300
        attempt = Attempt(
            time=int(sent.began * 1e6),
            webhook_id=sent.name,
            status=answer.status,
            reason=None if taken else answer.reason,
            seconds=round(sent.seconds, 6),
            answer=answer.text,
            events=sent.events,
            outcome=outcome,
            next_attempt=next_attempt,
        )
        self.attempts.add(sent.address, attempt)
        return attempt
