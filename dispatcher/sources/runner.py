"""Consumes one source: receives messages, commits them as events, and acknowledges them to the broker.

Theory of operation
-------------------
    connect ──> receive ──> commit ──> acknowledge ──> receive …
       ^                      │ refused: full disk, overload, quota, no topic
       └── wait <── failure   └── wait, and commit the same messages again

A message is acknowledged after its event is committed, so a crash repeats it; an event id makes the
repetition harmless (`dispatcher.api.publish`). A message that cannot be an event is stored as a dead letter
in place of an event, and acknowledged: it never blocks those behind it.

The broker sends no more than `prefetch` messages without an acknowledgement. While the dispatcher refuses
events, nothing is acknowledged, so the broker keeps the rest.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal, Protocol, Self

import structlog

from dispatcher.auth.caller import Caller
from dispatcher.sources import messages as sorting
from dispatcher.store.sources import Letter, Source
from dispatcher.subscriptions.topics import Topic
from edn.api.events import Published
from edn.brokers.link import Link
from edn.brokers.messages import BrokerFailed, Consumer, Incoming
from edn.brokers.opening import open_consumer
from edn.errors import Conflict, EdnError, InvalidInput, NotFound, Overloaded, Unadvertised, Unavailable
from edn.formats.broker_url import BrokerUrl
from edn.runtime import clock
from edn.runtime.ownership import owned

logger = structlog.get_logger()

#: messages of one commit
BATCH = 500
#: bytes of one commit, and so of one message
BATCH_BYTES = (1 << 20) - 64
#: seconds until an idle source looks whether its queue still exists
IDLE_SECONDS = 5.0
#: seconds between two connections, doubled after each failure
FIRST_SECONDS, LONGEST_SECONDS = 0.2, 30.0
#: seconds between two commits of messages that were refused
REFUSED_SECONDS = 1.0
#: seconds after which a broker is told that its messages are still in work
HOLD_SECONDS = 10.0

State = Literal["connecting", "running", "waiting", "refused"]


class Publish(Protocol):
    async def __call__(
        self, topic: Topic, body: bytes, who: Caller, names: Sequence[str | None]
    ) -> Published:
        """Commits the events of a body; `names`: ids of events that have none of their own."""


@owned("loop")
@dataclass(slots=True)
class Counters:
    """Messages since this dispatcher began to run the source."""

    received: int = 0
    published: int = 0
    rejected: int = 0
    #: without acknowledgements (MQTT's QoS 0), and more than could be held
    dropped: int = 0
    #: dead letters that were dropped for newer ones
    letters_dropped: int = 0
    connections: int = 0

    def __iadd__(self, other: Counters) -> Self:
        for counter in fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))
        return self


@owned("loop")
class SourceRunner:
    def __init__(
        self,
        source: Source,
        url: BrokerUrl,
        who: Caller,
        link: Link,
        publish: Publish,
        find_topic: Callable[[str, str], Topic],
        bury: Callable[[str, Sequence[Letter]], Awaitable[int]],
    ) -> None:
        """`bury` stores dead letters durably; `who` pays for the events."""
        self.source = source
        self.counters = Counters()
        #: `refused`: the dispatcher accepts no events at the moment; `waiting`: the broker cannot be used
        self.state: State = "connecting"
        self.error: str | None = None
        #: microseconds since 1970
        self.error_time: int | None = None
        self.last_message: int | None = None
        self._url = url
        self._who = who
        self._link = link
        self._publish = publish
        self._find_topic = find_topic
        self._bury = bury

    async def run(self) -> None:
        """Consumes until it is cancelled."""
        delay = FIRST_SECONDS
        while True:
            self.state = "connecting"
            began = time.monotonic()
            try:
                await self._consume()
            except BrokerFailed as failure:
                self._report(failure.reason)
            except Exception as error:
                logger.exception("source_failed", source=self.source.id)
                self._report(f"{type(error).__name__}: {error}")
            if time.monotonic() - began > LONGEST_SECONDS:
                delay = FIRST_SECONDS
            self.state = "waiting"
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, LONGEST_SECONDS)

    def _report(self, reason: str) -> None:
        if reason != self.error:
            logger.warning("source_not_consumed", source=self.source.id, reason=reason)
        self.error, self.error_time = reason, int(clock.estimate() * 1e6)

    async def _consume(self) -> None:
        consumer = await open_consumer(self._link, self._url, self.source.consumer)
        self.counters.connections += 1
        dropped = self.counters.dropped
        try:
            self.state = "running"
            while True:
                received = await consumer.receive(BATCH, IDLE_SECONDS)
                self.counters.dropped = dropped + consumer.dropped
                if received:
                    self.counters.received += len(received)
                    self.last_message = int(clock.estimate() * 1e6)
                    await self._commit(consumer, received)
                    await consumer.acknowledge(received)
                self.error = None
        finally:
            await consumer.close()

    async def _commit(self, consumer: Consumer, received: Sequence[Incoming]) -> None:
        """Commits messages as events or as dead letters; waits while the dispatcher refuses events."""
        found = sorting.sort(received, BATCH_BYTES)
        await self._reject(consumer, received, found.bad)
        for part in sorting.chunks(found.good, BATCH_BYTES):
            await self._commit_part(consumer, received, part)

    async def _commit_part(
        self, consumer: Consumer, received: Sequence[Incoming], part: list[Incoming]
    ) -> None:
        while part:
            try:
                topic = self._find_topic(self.source.topic, self.source.tenant)
                names = [sorting.event_id(message) for message in part]
                published = await self._publish(topic, sorting.body_of(part), self._who, names)
                self.counters.published += published.accepted
                return
            except (Overloaded, Unavailable, NotFound) as refusal:
                await self._wait(consumer, received, refusal)
            except (Conflict, Unadvertised) as refusal:
                place = _place_of(refusal, len(part))
                await self._reject(consumer, received, [sorting.letter(part[place], refusal.detail)])
                part = part[:place] + part[place + 1 :]
            except InvalidInput as error:
                sorted_ = sorting.sort_by_schema(part, topic.schema)
                if not sorted_.bad and len(part) > 1:
                    # Each is valid, but not all of them together.
                    for message in part:
                        await self._commit_part(consumer, received, [message])
                    return
                bad = sorted_.bad or [sorting.letter(part[0], error.detail)]
                await self._reject(consumer, received, bad)
                part = sorted_.good if sorted_.bad else []

    async def _reject(self, consumer: Consumer, received: Sequence[Incoming], bad: Sequence[Letter]) -> None:
        while bad:
            try:
                self.counters.letters_dropped += await self._bury(self.source.id, bad)
                self.counters.rejected += len(bad)
                return
            except (Overloaded, Unavailable) as refusal:
                await self._wait(consumer, received, refusal)

    async def _wait(self, consumer: Consumer, received: Sequence[Incoming], refusal: EdnError) -> None:
        """Waits before the next commit, and keeps the broker from delivering the messages again."""
        self.state = "refused"
        self._report(refusal.detail)
        seconds = max(REFUSED_SECONDS, min(refusal.retry_after or 0.0, LONGEST_SECONDS))
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, HOLD_SECONDS))
            await consumer.hold(received)
        self.state = "running"


def _place_of(refusal: Conflict | Unadvertised, count: int) -> int:
    """Returns the place of the event whose id is in use (`/3/$id`), or that is not advertised."""
    place = (refusal.pointer or "").split("/")[1:2]
    return min(int(place[0]), count - 1) if place and place[0].isdecimal() else 0
