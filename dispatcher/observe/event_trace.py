"""Follows one recent event: when it was accepted, where it was sent, whom it matched, how they were told.

The dispatcher knows an event as long as it is in memory (`servers.pipeline.TAIL_BYTES`), a server about as
long. Times are of the machine that tells them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from dispatcher.servers.client import ServerClient
from dispatcher.store import directory
from dispatcher.store.event_log import Log
from dispatcher.store.log_tail import Tail
from dispatcher.store.records import EventsRecord
from dispatcher.subscriptions.topics import Topic
from edn import protocol
from edn.api.explain import FollowedAttempt, FollowedEvent, FollowedMatch, FollowedServer
from edn.api.fields import fill
from edn.errors import EdnError, NotFound
from edn.formats import trace_context
from edn.formats.ndjson import cut
from edn.model.coordinates import rfc3339
from edn.model.namespace import public_id

#: events looked through for an id that a publisher chose
LOOKED_AT = 200_000

_journey = protocol.Decoder(protocol.EventTrace)


class EventTrace:
    def __init__(self, log: Log, tail: Tail, calls: ServerClient) -> None:
        self._log = log
        self._tail = tail
        self._calls = calls

    async def follow(self, topic: Topic, id: str) -> FollowedEvent:
        record, place = self._find(topic, id)
        offset = record.first + place
        routed = record.routed[place] if record.routed is not None else ()
        sent = [server for server, goes in zip(record.servers, routed, strict=False) if goes]
        servers = await asyncio.gather(*(self._server(server, topic, offset) for server in sent))
        trace = record.traces[place] if record.traces else ""
        return FollowedEvent(
            id=id,
            topic=topic.name,
            offset=offset,
            accepted=rfc3339(record.time),
            time=rfc3339(int(record.stamps[place])),
            attributes=msgspec.json.decode(cut(record.lines, record.ends, place)),
            traceparent=dict(trace_context.headers(trace)).get("traceparent"),
            not_sent_to=[server for server in record.servers if server not in sent],
            servers=servers,
        )

    def _find(self, topic: Topic, id: str) -> tuple[EventsRecord, int]:
        prefix = protocol.generated_id(self._log.id, "")
        number = id.removeprefix(prefix)
        offset = int(number) if id.startswith(prefix) and number.isdecimal() and len(number) < 19 else None
        for record in self._tail.recent(topic.uid, LOOKED_AT):
            if offset is not None and record.first <= offset <= record.last and not record.ids:
                return record, offset - record.first
            if record.ids and id in record.ids:
                return record, record.ids.index(id)
        raise NotFound(
            f'no recent event "{id[:80]}" of {topic.name}; only events still in memory can be followed'
        )

    async def _server(self, server: str, topic: Topic, offset: int) -> FollowedServer:
        try:
            answer = await self._calls.tell(
                server, "/internal/journey", protocol.TraceQuery(self._log.id, offset)
            )
            journey = _journey.decode(answer)
        except (EdnError, msgspec.MsgspecError) as error:
            return FollowedServer(server, failure=str(error))
        named = await self._named([one.subscription for one in journey.recipients], topic)
        return FollowedServer(
            server,
            taken=None if journey.committed is None else rfc3339(journey.committed),
            matches=[
                FollowedMatch(
                    subscription=named[one.subscription],
                    attempts=[
                        fill(FollowedAttempt, attempt, time=rfc3339(attempt.time)) for attempt in one.attempts
                    ],
                )
                for one in journey.recipients
            ],
        )

    async def _named(self, keys: Sequence[str], topic: Topic) -> dict[str, str]:
        """Return the ids of subscriptions that an event of this topic matched; empty for one that has ended.

        A server remembers matches by version numbers, and gives a number that is free to another version:
        what it names may be a later subscription, of another topic and another tenant.
        """
        topics = await self._log.reading(lambda connection: directory.topics_of(connection, keys))
        return {key: public_id(key) if topics.get(key) == topic.uid else "" for key in keys}
