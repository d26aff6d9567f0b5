"""The hot path's first half: a request's bytes become committed events. Plain ASGI, no pydantic, no logging.

One msgspec call decodes and checks a body, one log operation commits it. An event id that a publisher chose
makes publishing idempotent: the same id and body again gets the first answer again and no second event;
another body under a taken id is refused with 409.
"""

from __future__ import annotations

import hashlib
from urllib.parse import unquote

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dispatcher.log import Transaction
from dispatcher.network import Network
from dispatcher.topics import Topic, Topics
from edn import defects
from edn.asgi import problem_response, read_body
from edn.errors import (
    Conflict,
    EdnError,
    InvalidEvent,
    InvalidInput,
    NotFound,
    Overloaded,
    TooLarge,
    Unavailable,
    Unsupported,
)
from edn.event import EventBatch

MAX_KEY = 200


class Accepted(msgspec.Struct, frozen=True):
    accepted: int
    ids: list[str]


class PublishEndpoint:
    """`POST /v1/topics/{name}/events`."""

    def __init__(self, network: Network, topics: Topics) -> None:
        self._network = network
        self._topics = topics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            topic = self._topics.get(scope["path_params"]["name"])
            key = _read_headers(scope)
            body = await read_body(receive)
            accepted = await self.publish(topic, body, key)
            response = Response(msgspec.json.encode(accepted), status_code=202, media_type="application/json")
        except EdnError as error:
            response = problem_response(error)
        await response(scope, receive, send)

    async def publish(self, topic: Topic, body: bytes, key: str | None = None) -> Accepted:
        """Accept one event or an array of them, all or nothing."""
        settings = self._network.settings
        log = self._network.log
        if log.pending > settings.pending_bytes:
            raise Overloaded("more is waiting for the disk than the dispatcher holds", retry_after=1)
        if self._network.disk_full:
            raise Unavailable(
                "the log's disk is full; nothing is accepted until there is room", retry_after=5
            )
        if self._network.pressure.full:
            await self._network.pressure.wait()
        batch = topic.schema.decode_events(body)
        if len(batch.bodies) > settings.events_per_request:
            raise TooLarge(
                f"{len(batch.bodies)} events in one request; at most {settings.events_per_request} are taken"
            )
        for place, availability in enumerate(batch.availabilities):
            if availability:
                raise InvalidEvent(
                    "$availability beyond 0 is not offered: events are not kept for later subscribers",
                    index=place,
                    pointer=f"/{place}/$availability",
                )
        if not batch.bodies:
            return Accepted(0, [])
        ids = batch.ids
        if key is not None:
            ids = [name if name is not None else f"{key}/{place}" for place, name in enumerate(ids)]

        def append(transaction: Transaction) -> list[str]:
            if not transaction.connection.execute(
                "SELECT 1 FROM topics WHERE uid = ?", (topic.uid,)
            ).fetchone():
                raise NotFound(f'no topic "{topic.name}": it was deleted meanwhile')
            if any(name is not None for name in ids):
                return _append_once(transaction, topic, ids, batch)
            return transaction.append_events(topic.uid, ids, batch.stamps, batch.bodies, batch.points)

        committed = log.submit(append, size=len(body))
        if defects.planted("acknowledge-before-commit"):  # for tests only
            chosen = [name for name in ids if name is not None]
            if len(chosen) == len(ids):
                return Accepted(len(chosen), chosen)
        named = await committed
        return Accepted(len(named), named)


def _append_once(
    transaction: Transaction, topic: Topic, ids: list[str | None], batch: EventBatch
) -> list[str]:
    """Append the events whose chosen id is new; those that came before are answered, not repeated."""
    connection = transaction.connection
    seen: dict[str, bytes] = {}
    fresh: list[int] = []
    for place, name in enumerate(ids):
        if name is None:
            fresh.append(place)
            continue
        digest = hashlib.blake2b(
            b"%d|%s" % (batch.stamps[place] or 0, batch.bodies[place]), digest_size=16
        ).digest()
        before = seen.get(name)
        if before is None:
            row = connection.execute(
                "SELECT digest FROM event_ids WHERE topic = ? AND id = ?", (topic.uid, name)
            ).fetchone()
            before = row[0] if row else None
        if before is None:
            connection.execute(
                "INSERT INTO event_ids VALUES (?, ?, ?, ?)", (topic.uid, name, digest, transaction.time)
            )
            fresh.append(place)
        elif before != digest:
            raise Conflict(
                f'event {place}: id "{name[:80]}" was used for another event of this topic',
                pointer=f"/{place}/$id",
            )
        seen[name] = digest
    made = iter(
        transaction.append_events(
            topic.uid,
            [ids[place] for place in fresh],
            [batch.stamps[place] for place in fresh],
            [batch.bodies[place] for place in fresh],
            batch.points[fresh],
        )
        if fresh
        else []
    )
    placed = set(fresh)
    return [next(made) if place in placed else str(name) for place, name in enumerate(ids)]


def _read_headers(scope: Scope) -> str | None:
    """The Idempotency-Key, if there is one; refuses a body that is not JSON."""
    key = None
    for name, value in scope["headers"]:
        if name == b"content-type":
            media = value.partition(b";")[0].strip().lower()
            if media not in (b"application/json", b"text/json"):
                raise Unsupported(f"events are taken as application/json; got {media.decode('latin-1')[:80]}")
        elif name == b"idempotency-key":
            key = unquote(value.decode("latin-1")).strip().strip('"')
            if not 1 <= len(key) <= MAX_KEY:
                raise InvalidInput(f"Idempotency-Key: 1 to {MAX_KEY} characters")
    return key
