"""Explains how an event would be routed and matched, and what a filter would match.

For an event, the routing table names the servers that would get it and the rectangle that contains it; these
servers name the subscriptions that match, and their clauses. A server where nothing matches is a false
positive. Nothing is stored, counted or delivered.

A filter is compared with stored filters, within a budget, and with recent events.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from dispatcher.advertisements.guard import BoundCache
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.client import ServerClient
from dispatcher.servers.log_tail import Tail
from dispatcher.servers.registry import Server, ServerRegistry
from dispatcher.store import advertisement_rows, directory
from dispatcher.store.event_log import Log
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.topics import Topic
from edn import protocol
from edn.api.explain import (
    AskedSubscription,
    ExplainedAdvertisement,
    ExplainedEvent,
    ExplainedFilter,
    ExplainedServer,
    ExplainedSubscription,
    MetServer,
    RecentMatches,
    Why,
)
from edn.api.fields import fill
from edn.arrays import Floats
from edn.errors import EdnError, InvalidInput
from edn.formats.ndjson import split
from edn.model import namespace
from edn.model.coordinates import rfc3339
from edn.model.display import shown_rect
from edn.model.filter import BoundFilter, Filter
from edn.model.filter.advertisement import BoundAdvertisement
from edn.model.filter.reasons import reasons
from edn.model.namespace import public_id
from edn.model.rect import Rects
from edn.model.sequence import UNLESS, decode, is_sequence
from edn.runtime.ownership import owned

#: limit of subscriptions that a server names
NAMED = 100
#: limits of the comparison with stored filters: their number, and seconds
COMPARED = 5_000
COMPARING_SECONDS = 2.0
#: limit of recent events that a filter is tested on
RECENT = 2_000
#: limit of a filter's rectangles in the answer
SHOWN = 16

_explained = protocol.Decoder(protocol.Explained)


@owned("loop")
@dataclass(frozen=True, eq=False)
class Explainer:
    _log: Log
    _tail: Tail
    _table: RoutingTable
    _registry: ServerRegistry
    _client: ServerClient
    _subscriptions: Subscriptions
    _bound: BoundCache

    # -- events -----------------------------------------------------------------------------------------

    async def event(
        self, topic: Topic, event: Any, asked: directory.Subscription | None = None
    ) -> ExplainedEvent:
        """Explain how the event would be routed and matched if it were published now.

        `asked`: a subscription to explain even if nothing is routed to it.
        """
        batch = topic.schema.decode_events(msgspec.json.encode(event))
        if len(batch) != 1:
            raise InvalidInput(f"event must be one event, got {len(batch)}", pointer="/event")
        line = split(batch.lines)[0]
        table = self._table
        servers, routed = table.servers, table.would_route(topic.uid, batch.points)[0]
        question = protocol.Explain(
            log=self._log.id,
            topic=topic.uid,
            time=self._log.now(),
            point=protocol.points_bytes(batch.points),
            line=line,
            limit=NAMED,
        )
        explained = await asyncio.gather(
            *(
                self._server(topic, server, bool(goes), batch.points[0], question)
                for server, goes in zip(servers, routed, strict=True)
            )
        )
        return ExplainedEvent(
            topic=topic.name,
            event=msgspec.json.decode(line),
            precision=table.describe(servers[0]).precision if servers else None,
            matched=sum(one.matched or 0 for one in explained),
            false_positives=[one.server for one in explained if one.false_positive],
            servers=explained,
            advertising=topic.advertising,
            advertised_by=await self._advertised(
                topic, lambda one: one.matches(topic.schema.values(line, batch.points[0].tolist()))
            ),
            subscription=None if asked is None else await self._asked(topic, asked, line),
        )

    async def _asked(self, topic: Topic, asked: directory.Subscription, line: bytes) -> AskedSubscription:
        """Explain why one subscription matches an event or not."""
        found = AskedSubscription(
            id=public_id(asked.id),
            matches=False,
            clauses=[],
            server=asked.server or None,
            paused=asked.paused,
            filter=None if is_sequence(asked.filter) else asked.filter,
            text=None,
        )
        if is_sequence(asked.filter):
            return await self._asked_sequence(topic, asked, found, line)
        if asked.subtree is None and asked.topic != topic.uid:
            return replace(found, failure="it is a subscription to another topic")
        if asked.subtree is not None and not namespace.includes(asked.subtree, topic.path):
            return replace(found, failure=f"its subtree does not contain the topic {topic.name}")
        filter = Filter.parse(asked.filter)
        found = replace(found, text=filter.to_text())
        try:
            bound = filter.bind(topic.schema)
        except EdnError as error:
            return replace(found, failure=f"its filter does not fit the topic: {error.detail}")

        def evaluate() -> tuple[bool, list[str]]:
            values = topic.schema.values(line)
            return bound.matches(values), reasons(bound, values)

        # In a thread, because a filter may be slow.
        matches, clauses = await asyncio.to_thread(evaluate)
        return replace(found, matches=matches, clauses=clauses)

    async def _asked_sequence(
        self, topic: Topic, asked: directory.Subscription, found: AskedSubscription, line: bytes
    ) -> AskedSubscription:
        """Explain which steps of a sequence an event matches; its server knows which one is awaited."""
        sequence = decode(asked.filter)
        texts = [f"step {place}" for place in range(1, len(sequence.steps) + 1)]
        names = {role: texts[role] for role in range(len(texts))}
        names |= {UNLESS + role: f"the unless of {text}" for role, text in enumerate(texts)}
        if topic.uid not in sequence.topics:
            return replace(found, failure="no step of the sequence is on this topic")
        own = [(names[role], part) for role, part in sequence.roles if part.topic == topic.uid]

        def evaluate() -> list[str]:
            values = topic.schema.values(line)
            return [
                name for name, part in own if Filter.parse(part.filter).bind(topic.schema).matches(values)
            ]

        try:
            matching = await asyncio.to_thread(evaluate)
        except EdnError as error:
            return replace(found, failure=f"a filter of the sequence does not fit the topic: {error.detail}")
        return replace(found, matches=bool(matching), clauses=matching)

    async def _server(
        self, topic: Topic, server: str, routed: bool, point: Floats, question: protocol.Explain
    ) -> ExplainedServer:
        known = self._registry.get(server)
        why, rectangle, tried = self._why(topic, server, routed, point)
        found = ExplainedServer(
            server=server,
            state=self._registry.state(known) if known is not None else "away",
            routed=routed,
            why=why,
            rectangle=rectangle,
            rectangles=tried,
            summary_seconds=None if known is None else known.summary_age(),
        )
        if not routed:
            return replace(found, matched=0)
        try:
            answer = _explained.decode(await self._client.send(server, "/internal/explain", question))
        except (EdnError, msgspec.MsgspecError) as error:
            return replace(found, failure=str(error))
        return replace(
            found,
            matched=answer.matched,
            false_positive=answer.matched == 0,
            subscriptions=await self._named(answer.subscriptions),
        )

    async def _named(self, explained: Sequence[protocol.Explanation]) -> list[ExplainedSubscription]:
        found = await self._log.reading(
            lambda connection: [(one, directory.find(connection, one.id)) for one in explained]
        )
        return [
            fill(
                ExplainedSubscription,
                one,
                id=public_id(one.id),
                recipient=stored.recipient if stored else None,
                filter=stored.filter if stored and not is_sequence(stored.filter) else None,
                step=one.step or None,
            )
            for one, stored in found
        ]

    def _why(
        self, topic: Topic, server: str, routed: bool, point: Floats
    ) -> tuple[Why, dict[str, Any] | None, int]:
        """Return why the event is routed or not, the rectangle that contains it, and how many were tested."""
        table, columns = self._table, topic.schema.to_wire()
        if table.describe(server).everything:
            return "everything", None, 0
        tried = 0
        for why, lo, hi in table.rectangles(server, topic.uid):
            place = _containing(lo, hi, point)
            if place is not None:
                return why if routed else "mask", shown_rect(columns, lo[place], hi[place]), tried + len(lo)
            tried += len(lo)
        return "no rectangle", None, tried

    # -- filters ----------------------------------------------------------------------------------------

    async def filter(self, topic: Topic, given: Any) -> ExplainedFilter:
        """Explain a filter: its rectangles, covering relations to stored filters, recent matches."""
        try:
            bound = Filter.parse(given).bind(topic.schema)
        except EdnError as error:
            error.pointer = "/filter" + (error.pointer or "")
            raise
        columns, rects = topic.schema.to_wire(), bound.rects()
        return ExplainedFilter(
            topic=topic.name,
            filter=bound.filter.to_json(),
            text=bound.filter.to_text(),
            exact=bool(rects.exact.all()),
            rectangles=[
                shown_rect(columns, lo, hi) for lo, hi in zip(rects.lo[:SHOWN], rects.hi[:SHOWN], strict=True)
            ],
            rectangle_count=len(rects),
            servers=[self._meeting(server, topic, rects) for server in self._registry],
            recent=await self._recent(topic, bound),
            advertised_by=await self._advertised(topic, lambda one: one.overlaps(bound)),
            **await self._compared(topic, bound),
        )

    def _meeting(self, server: Server, topic: Topic, rects: Rects) -> MetServer:
        """Count a server's rectangles that intersect the filter's."""
        table = self._table
        everything = table.describe(server.id).everything
        meeting = total = 0
        for _, lo, hi in table.rectangles(server.id, topic.uid):
            width = min(lo.shape[1], rects.width)
            total += len(lo)
            met = np.zeros(len(lo), dtype=np.bool_)
            for low, high in zip(rects.lo[:, :width], rects.hi[:, :width], strict=True):
                met |= ((lo[:, :width] <= high) & (low <= hi[:, :width])).all(axis=1)
            meeting += int(np.count_nonzero(met))
        return MetServer(server=server.id, everything=everything, meeting=meeting, rectangles=total)

    async def _advertised(
        self, topic: Topic, concerns: Callable[[BoundAdvertisement], bool]
    ) -> list[ExplainedAdvertisement] | None:
        """Name the advertisements of a topic that an event or filter concerns."""
        rows = await self._log.reading(advertisement_rows.of_topic, topic.uid, self._log.now())
        if not rows:
            return None

        def find() -> list[ExplainedAdvertisement]:
            chosen = (row for row in rows if concerns(self._bound.get(row, topic.schema)))
            return [
                ExplainedAdvertisement(namespace.id_of(row.id), row.publisher)
                for row in itertools.islice(chosen, NAMED)
            ]

        return await asyncio.to_thread(find)

    async def _recent(self, topic: Topic, bound: BoundFilter) -> RecentMatches:
        records = self._tail.recent(topic.uid, RECENT)
        rects = bound.rects()

        def count() -> tuple[int, int, int | None]:
            matched = seen = 0
            oldest: int | None = None
            for record in records:
                points = np.full((record.count, rects.width), -np.inf)
                shared = min(rects.width, record.points.shape[1])
                points[:, :shared] = record.points[:, :shared]
                inside = rects.contain(points)
                surely: npt.NDArray[np.bool_] = np.logical_or.reduce(inside & rects.exact, axis=1)
                lines = split(record.lines)
                for place in np.flatnonzero(inside.any(axis=1) & ~surely).tolist():
                    surely[place] = bound.matches(topic.schema.values(lines[place]))
                matched += int(np.count_nonzero(surely))
                seen += record.count
                oldest = record.time
            return matched, seen, oldest

        matched, seen, oldest = await asyncio.to_thread(count)
        return RecentMatches(
            events=seen,
            matched=matched,
            share=matched / seen if seen else None,
            since=None if oldest is None else rfc3339(oldest),
        )

    async def _compared(self, topic: Topic, bound: BoundFilter) -> dict[str, Any]:
        covers: list[str] = []
        covered_by: list[str] = []
        examined = 0
        began = time.monotonic()
        async for page in self._pages(topic):

            def compare(page: list[directory.Subscription] = page) -> list[tuple[str, bool, bool]]:
                stored = [
                    (one.id, Filter.parse(one.filter).bind(topic.schema))
                    for one in page
                    if not is_sequence(one.filter)
                ]
                return [(id, bound.covers(other), other.covers(bound)) for id, other in stored]

            # In a thread, so that publishers do not wait for it.
            for id, wider, narrower in await asyncio.to_thread(compare):
                if wider:
                    covers.append(public_id(id))
                if narrower:
                    covered_by.append(public_id(id))
            examined += len(page)
            if examined >= COMPARED or time.monotonic() - began > COMPARING_SECONDS:
                break
        count = await self._log.reading(lambda connection: directory.count(connection, topic.uid))
        return {
            "covers": covers[:NAMED],
            "covers_count": len(covers),
            "covered_by": covered_by[:NAMED],
            "covered_by_count": len(covered_by),
            "examined": examined,
            "subscriptions": count,
        }

    async def _pages(self, topic: Topic) -> AsyncIterator[list[directory.Subscription]]:
        cursor: str | None = None
        while True:
            page, cursor = await self._subscriptions.page(limit=200, cursor=cursor, topic=topic, owner=None)
            if page:
                yield page
            if cursor is None:
                return


def _containing(lo: Floats, hi: Floats, point: Floats) -> int | None:
    """Return the first rectangle that contains a point; columns that the point lacks are missing."""
    width = lo.shape[1]
    fitted = np.full(width, -np.inf)
    shared = min(width, len(point))
    fitted[:shared] = point[:shared]
    inside = np.flatnonzero(((lo <= fitted) & (fitted <= hi)).all(axis=1))
    return int(inside[0]) if len(inside) else None
