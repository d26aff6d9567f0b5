"""Delivers a delivery batch as several POSTs, in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from edn.formats.broker_url import is_broker
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.sinks.base import Answer, Message, Sink
from edn_server.sinks.http import HttpSink
from edn_server.sinks.resolver import Resolver

#: delivery batches whose progress is remembered
REMEMBERED = 10_000


@owned("loop")
class PostSequence:
    """Sends the POSTs of a batch; a further attempt resumes with the POST that failed."""

    def __init__(self, settings: Settings, resolver: Resolver | None, brokers: Sink | None = None) -> None:
        """`brokers` sends the messages to brokers; its owner closes it."""
        self._http = HttpSink(settings, resolver)
        self._brokers = brokers
        #: webhook-id → accepted POSTs
        self._accepted: OrderedDict[str, int] = OrderedDict()

    async def close(self) -> None:
        await self._http.close()

    async def send(
        self, webhook_id: str, posts: Iterable[Message], pause: Callable[[], float] | None = None
    ) -> Answer:
        """Returns the last answer; `pause` returns the seconds to wait before a POST, 0 for none."""
        answer = Answer(202)
        first = self._accepted.pop(webhook_id, 0)
        for place, post in enumerate(posts):
            if place < first:
                continue
            wait = pause() if pause is not None else 0.0
            # The attempt itself counts for the first of its POSTs.
            if not wait and place > first and post.profile is not None and post.profile.limiter is not None:
                wait = post.profile.limiter.take()
            if wait:
                answer = Answer(None, reason="the sink allows no more at the moment", pause=wait)
            else:
                answer = await self._sink(post.url).send(post)
            if answer.status is None or not 200 <= answer.status < 300:
                self._accepted[webhook_id] = place
                if len(self._accepted) > REMEMBERED:
                    self._accepted.popitem(last=False)
                return answer
        return answer

    def _sink(self, url: str) -> Sink:
        return self._brokers if self._brokers is not None and is_broker(url) else self._http
