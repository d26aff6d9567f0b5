"""Publishes events: decodes a request and commits its batch. Hot path: plain ASGI, no pydantic, no logging.

One msgspec call decodes and checks the body, one log operation commits it. An event id chosen by the
publisher makes publishing idempotent: the same id with the same bytes gets the first response and creates no
event; the same id with another event, or the same one written otherwise, is refused with 409.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from urllib.parse import unquote

import msgspec
import numpy as np
from starlette.types import Receive, Scope, Send

from dispatcher.advertisements.guard import Checked, PublicationGuard
from dispatcher.auth.access import Guard, UnknownKey, authorization_of
from dispatcher.auth.audit import Audit
from dispatcher.auth.caller import EVERYBODY, Caller, Need, needs
from dispatcher.servers.admission import Admission
from dispatcher.store import retention, topic_rows
from dispatcher.store.event_log import Log
from dispatcher.store.interface import OFF, Transaction
from dispatcher.subscriptions.topics import Topic, Topics
from edn.api.events import Published
from edn.arrays import Floats
from edn.errors import (
    Conflict,
    EdnError,
    Forbidden,
    InvalidInput,
    NotFound,
    TooLarge,
    Unadvertised,
    Unauthorized,
    Unsupported,
)
from edn.formats import cloudevents, trace_context
from edn.http.asgi import bug_response, problem_response, read_body, too_large
from edn.model.event import EventBatch
from edn.protocol.documents import cut_events
from edn.protocol.flat_events import read_flat_events
from edn.runtime import tracing

MAX_KEY = 200
#: bytes of one request body
BODY_BYTES = 1 << 20
#: events per batch
MAX_EVENTS = 10_000
_JSON = (b"content-type", b"application/json")
#: media types of plain events; none is allowed, too
_PLAIN = (b"application/json", b"text/json", b"")
_PREFIX, _SUFFIX = "/v1/topics/", "/events"
_SLASHES = 4


class _TopicChanged(Exception):
    """The schema of the topic has changed since the events were decoded."""


@needs(Need.PUBLISH)
class PublishEndpoint:
    """`POST /v1/topics/{name}/events` as an ASGI app of its own, without the layers around other routes."""

    PATH = "/v1/topics/{name}/events"

    def __init__(
        self,
        log: Log,
        admission: Admission,
        topics: Topics,
        guard: Guard,
        audit: Audit,
        advertised: PublicationGuard,
        *,
        retained_bytes: int = 0,
    ) -> None:
        """`retained_bytes`: limit of retained events per tenant; 0 is none."""
        self._guard = guard
        self._audit = audit
        self._log = log
        self._admission = admission
        self._topics = topics
        self._advertised = advertised
        self._retained_bytes = retained_bytes or None

    @staticmethod
    def serves(scope: Scope) -> bool:
        path: str = scope.get("path", "")
        return (
            path.startswith(_PREFIX)
            and path.endswith(_SUFFIX)
            and path.count("/") == _SLASHES
            and scope.get("method") == "POST"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        try:
            limit = BODY_BYTES
            self._guard.check_browser(scope, Need.PUBLISH)
            try:
                who = self._guard.identify(authorization_of(scope))
            except UnknownKey:
                await self._guard.learn_keys()
                who = self._guard.identify(authorization_of(scope))
            who.require(Need.PUBLISH)
            self._guard.quotas.count_request(who)
            if who.quota.body is not None:
                limit = min(limit, who.quota.body)
            key, trace, mode = _read_headers(scope, limit)
            topic = await self._topics.find(path[len(_PREFIX) : -len(_SUFFIX)], who.tenant)
            body = await read_body(receive, limit)
            if mode is not None:
                body, trace = _from_cloudevents(mode, scope, body, topic, trace)
            accepted = msgspec.json.encode(await self.publish(topic, body, key, trace, who))
        except EdnError as error:
            if isinstance(error, Unauthorized | Forbidden):
                error = self._audit.record_refusal(scope, error)
            await problem_response(error)(scope, receive, send)
        except Exception as error:
            await bug_response(path, error)(scope, receive, send)
        else:
            length = b"%d" % len(accepted)
            await send(
                {
                    "type": "http.response.start",
                    "status": 202,
                    "headers": [_JSON, (b"content-length", length)],
                }
            )
            await send({"type": "http.response.body", "body": accepted})

    async def publish(
        self, topic: Topic, body: bytes, key: str | None = None, trace: str = "", who: Caller = EVERYBODY
    ) -> Published:
        """Accepts one event or an array, all or nothing; `trace`: trace context of the request."""
        if tracing.active is None:
            return await self._publish(topic, body, key, trace, who)
        with tracing.active.publish(topic.name, trace) as own:
            return await self._publish(topic, body, key, own, who)

    async def publish_named(
        self, topic: Topic, body: bytes, who: Caller, names: Sequence[str | None]
    ) -> Published:
        """Accepts an array of events, all or nothing; `names`: ids of those without one of their own."""
        if tracing.active is None:
            return await self._publish(topic, body, None, "", who, names)
        with tracing.active.publish(topic.name, "") as own:
            return await self._publish(topic, body, None, own, who, names)

    async def _publish(
        self,
        topic: Topic,
        body: bytes,
        key: str | None,
        trace: str,
        who: Caller,
        names: Sequence[str | None] = (),
    ) -> Published:
        buckets = self._guard.quotas.event_buckets(who)
        await self._admission.admit(len(body))
        while True:
            batch = topic.schema.decode_events(body, cut_events, read_flat_events)
            if len(batch) > MAX_EVENTS:
                raise TooLarge(f"a request must have at most {MAX_EVENTS} events, got {len(batch)}")
            if not len(batch):
                return Published(0, [])
            for bucket in buckets:
                bucket.spend(len(batch))
            buckets = []
            ids = batch.ids
            if names:
                ids = [own if own is not None else name for own, name in zip(ids, names, strict=True)]
            elif key is not None:
                ids = [name if name is not None else f"{key}/{place}" for place, name in enumerate(ids)]
            checked = None
            if topic.advertising != OFF:
                checked = await self._advertised.check(topic, who.name, batch)
            try:
                return await self._commit(topic, batch, ids, trace, who, body, checked)
            except _TopicChanged:
                topic = await self._topics.reload(topic)

    async def _commit(
        self,
        topic: Topic,
        batch: EventBatch,
        ids: list[str | None],
        trace: str,
        who: Caller,
        body: bytes,
        checked: Checked | None,
    ) -> Published:
        """Appends the events in one transaction; returns their ids once it is committed."""
        availability = _availability(topic, batch)
        limits = [self._retained_bytes, who.quota.retained_bytes]
        limit = min((most for most in limits if most is not None), default=None)
        coverage = None if checked is None else checked.coverage
        current = coverage

        has_ids = ids.count(None) < len(ids)
        is_alone = body.lstrip()[:1] == b"{"

        def append(transaction: Transaction) -> Published:
            nonlocal current
            state = topic_rows.state_in(transaction, topic.uid)
            if state is None:
                raise NotFound(f'topic "{topic.name}" does not exist: it was just deleted')
            if state.revision != topic.revision:
                # The points would lack attributes that filters may use.
                raise _TopicChanged
            unadvertised: list[int] = []
            if state.advertising != OFF:
                decided = self._advertised.decide(
                    transaction, topic, who.name, batch, state.advertised, checked
                )
                current = decided.coverage
                if not decided.covered.all():
                    unadvertised = _unadvertised(transaction, topic, ids, decided)
                    if unadvertised and state.advertising == "guard":
                        raise current.explain(batch, unadvertised[0], who.name, alone=is_alone)
            if unadvertised or has_ids:
                accepted = _append_new(
                    transaction, topic, ids, batch, availability, trace, unadvertised, is_alone=is_alone
                )
            else:
                accepted = transaction.append_events(
                    topic.uid, ids, batch.stamps, batch.lines, batch.points, availability, trace
                )
            if availability is not None:
                retention.check(transaction.connection, topic.tenant, limit)
            return Published(len(accepted), accepted, unadvertised)

        is_deferred = not has_ids and availability is None
        size = len(body)
        try:
            if tracing.active is None:
                published = await self._log.submit(append, size, changes=False, is_deferred=is_deferred)
            else:
                with tracing.active.step("log", trace):
                    published = await self._log.submit(append, size, changes=False, is_deferred=is_deferred)
        except Unadvertised:
            self._advertised.refused += 1
            raise
        finally:
            if current is not None and current is not coverage:
                self._advertised.remember(topic.uid, who.name, current)
        self._advertised.dropped += len(published.unadvertised)
        return published


def _availability(topic: Topic, batch: EventBatch) -> Floats | None:
    """Returns the availability of each event in seconds; None if no event is retained."""
    if not topic.availability and batch.availabilities.count(None) == len(batch):
        return None
    given = [topic.availability if own is None else own for own in batch.availabilities]
    return np.array(given) if any(given) else None


def _append_new(
    transaction: Transaction,
    topic: Topic,
    ids: list[str | None],
    batch: EventBatch,
    availability: Floats | None,
    trace: str,
    dropped: Sequence[int],
    *,
    is_alone: bool,
) -> list[str]:
    """Appends the events whose ids are new, and that are not dropped; returns the ids of all others.

    `is_alone`: the request is one event, not an array.
    """
    left_out = frozenset(dropped)
    bodies = batch.bodies
    #: place and digest of the first event with each id
    first: dict[str, tuple[int, bytes]] = {}
    digests: dict[int, bytes] = {}
    for place, name in enumerate(ids):
        if name is not None and place not in left_out:
            stamped = b"%d|%s" % (batch.stamps[place] or 0, bodies[place])
            digests[place] = hashlib.blake2b(stamped, digest_size=16).digest()
            first.setdefault(name, (place, digests[place]))
    known: dict[str, bytes] = {}
    if first:
        given = {name: digest for name, (_, digest) in first.items()}
        known = retention.insert_events(transaction.connection, topic.uid, given, transaction.steady)
    fresh: list[int] = []
    for place, name in enumerate(ids):
        if place in left_out:
            continue
        if name is None or (name not in known and first[name][0] == place):
            fresh.append(place)
        elif known.get(name, first[name][1]) != digests[place]:
            which, pointer = ("", "/$id") if is_alone else (f"event {place}: ", f"/{place}/$id")
            raise Conflict(
                f'{which}id "{name[:80]}" is already used by another event of this topic', pointer=pointer
            )
    accepted = [str(id) for id in ids]
    if fresh:
        created = transaction.append_events(
            topic.uid,
            [ids[place] for place in fresh],
            [batch.stamps[place] for place in fresh],
            b"".join([bodies[place] + b"\n" for place in fresh]),
            batch.points[fresh],
            None if availability is None else availability[fresh],
            trace,
        )
        for place, id in zip(fresh, created, strict=True):
            accepted[place] = id
    return [id for place, id in enumerate(accepted) if place not in left_out] if left_out else accepted


def _unadvertised(
    transaction: Transaction, topic: Topic, ids: list[str | None], decided: Checked
) -> list[int]:
    """Returns the places of events that are not covered and do not repeat an accepted event."""
    places: list[int] = np.flatnonzero(~decided.covered).tolist()
    named = [name for place in places if (name := ids[place]) is not None]
    known = retention.known_events(transaction.connection, topic.uid, named) if named else frozenset()
    return [place for place in places if ids[place] not in known]


def _read_headers(scope: Scope, limit: int) -> tuple[str | None, str, str | None]:
    """Returns the Idempotency-Key, the trace context (`edn.formats.trace_context`) and the CloudEvents mode.

    Refuses other media types, and bodies whose declared length exceeds the limit.
    """
    key, parent, state, mode, media = None, b"", b"", None, b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            media = value.partition(b";")[0].strip().lower()
        elif name == b"content-length":
            if value.isdigit() and int(value) > limit:
                raise too_large(limit)
        elif name == b"idempotency-key":
            key = unquote(value.decode("latin-1")).strip().strip('"')
            if not 1 <= len(key) <= MAX_KEY:
                raise InvalidInput(f"Idempotency-Key must be 1 to {MAX_KEY} characters, got {len(key)}")
        elif name == b"traceparent":
            parent = value
        elif name == b"tracestate":
            state = value
        elif name == b"ce-specversion":
            mode = "binary"
    if media not in _PLAIN:
        if media.startswith(b"application/cloudevents"):
            mode = cloudevents.mode_of(media, ())
        elif mode is None:
            raise Unsupported(
                "Content-Type must be application/json or a media type of CloudEvents, got "
                f'"{media.decode("latin-1")[:80]}"'
            )
    return key, trace_context.read(parent, state) if parent else "", mode


def _from_cloudevents(mode: str, scope: Scope, body: bytes, topic: Topic, trace: str) -> tuple[bytes, str]:
    """Converts CloudEvents to plain events; a single event may contain the trace context."""
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    events = cloudevents.read(mode, kind, scope["headers"], body)
    if not trace and len(events) == 1:
        given = [str(events[0].context.get(name, "")).encode() for name in ("traceparent", "tracestate")]
        trace = trace_context.read(*given)
    return cloudevents.plain(events, topic.schema.types, closed=topic.closed), trace
