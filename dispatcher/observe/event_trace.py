"""Traces one recent event: its acceptance, the servers it was sent to, its matches and delivery attempts.

An event can be traced while it is in the dispatcher's memory (`servers.pipeline.TAIL_BYTES`); a server
remembers it about as long. Times are of the machine that reports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from dispatcher.servers.client import ServerClient
from dispatcher.servers.log_tail import Tail
from dispatcher.store import directory
from dispatcher.store.event_log import Log
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
from edn.runtime.ownership import owned

#: number of recent events that are searched for an id
SEARCHED = 200_000

_journey = protocol.Decoder(protocol.EventTrace)


@owned("loop")
@dataclass(frozen=True, eq=False)
class EventTrace:
    _log: Log
    _tail: Tail
    _client: ServerClient

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
        for record in self._tail.recent(topic.uid, SEARCHED):
            if offset is not None and record.first <= offset <= record.last and not record.ids:
                return record, offset - record.first
            if record.ids and id in record.ids:
                return record, record.ids.index(id)
        raise NotFound(
            f'event "{id[:80]}" of topic "{topic.name}" is not in memory; only recent events can be traced'
        )

    async def _server(self, server: str, topic: Topic, offset: int) -> FollowedServer:
        try:
            question = protocol.TraceQuery(self._log.id, offset)
            journey = _journey.decode(await self._client.send(server, "/internal/journey", question))
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
        """Return the ids of the matched subscriptions; empty for one that has ended.

        A server remembers matches by slot numbers, which it reuses. So it may name a later subscription, of
        another topic and tenant.
        """
        topics = await self._log.reading(lambda connection: directory.topics_of(connection, keys))
        return {key: public_id(key) if topics.get(key) == topic.uid else "" for key in keys}
