"""The calls of the REST interface, each described once; `Client` and `AsyncClient` both speak them.

A function here returns a `Call` (one request) or is a plan (several). None of them does any I/O.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from edn.client import encoding
from edn.client.conversation import Call, Plan, reading
from edn.client.encoding import array, chunks, encode, expiry, key_header
from edn.client.problems import ProblemError
from edn.client.results import (
    Attempt,
    Binding,
    DeadLetter,
    DeadLetterPage,
    Delivery,
    Health,
    Key,
    Published,
    Queued,
    Rotation,
    Routes,
    Server,
    Sink,
    Subscription,
    SubscriptionPage,
    Topic,
    Tuning,
)
from edn.errors import InvalidInput
from edn.webhooks import new_secret

#: limits of one request; a batch beyond them is split
MAX_BODY_BYTES = 1024 * 1024
MAX_EVENTS = 500
MAX_SUBSCRIPTIONS = 1000

T = TypeVar("T")

#: a filter as JSON, as text, or None: everything
FilterLike = Mapping[str, Any] | str | None
#: an instant (RFC 3339), a duration such as "PT1H", or None: never
ExpiresLike = str | datetime | timedelta | None


class Keep(Enum):
    """The default of `change`: leave this part as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


class NewSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """What to subscribe to, for `subscribe_many`. Without a `url` the subscription is a stream."""

    #: or subtree: "stocks.**" is "stocks" and all topics below it
    topic: str
    filter: FilterLike = None
    url: str | None = None
    #: who is meant behind the address
    recipient: str | None = None
    #: what notifications are signed with, "whsec_…"; without one, one is made and shown in the answer
    secret: str | None = None
    expires: ExpiresLike = None
    #: your own id; the same one again is the same subscription, not a second one
    id: str | None = None
    owner: str | None = None
    #: where the subscriber is, in the servers' coordinates
    location: list[float] | None = None
    #: "now", an instant, or a duration that long ago; None is with all that is still available
    since: ExpiresLike = None

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"topic": self.topic, "id": self.id or str(uuid.uuid4())}
        if self.filter is not None:
            body["filter"] = self.filter
        if self.url is not None:
            body["sink"] = _sink(self.url, self.recipient)
            if self.secret is not None:
                body["sink"]["secret"] = self.secret
        elif self.recipient is not None:
            raise InvalidInput("a recipient is somebody behind an address: give a url, too", pointer="/sink")
        if self.expires is not None:
            body["expires"] = expiry(self.expires)
        if self.owner is not None:
            body["owner"] = self.owner
        if self.location is not None:
            body["location"] = self.location
        if self.since is not None:
            body["from"] = expiry(self.since)
        return body


class _Subscribed(msgspec.Struct):
    subscriptions: list[Subscription]


class _Topics(msgspec.Struct):
    topics: list[Topic]


class _Keys(msgspec.Struct):
    keys: list[Key]


class _Servers(msgspec.Struct):
    servers: list[Server]
    published: int | None = None


# Topics


def create_topic(
    name: str,
    attributes: Mapping[str, str],
    *,
    engine: str | None = None,
    availability: float | str | None = None,
) -> Call[Topic]:
    """Create a topic, or change the one of this name; attributes map a name to its type."""
    body: dict[str, Any] = {"attributes": dict(attributes)}
    if engine is not None:
        body["engine"] = engine
    if availability is not None:
        body["availability"] = availability
    return Call(method="PUT", path=_topic_path(name), body=encode(body), read=reading(Topic))


def topics() -> Call[list[Topic]]:
    """All topics."""
    read = reading(_Topics)
    return Call(method="GET", path="/v1/topics", read=lambda response: read(response).topics)


def topic(name: str) -> Call[Topic]:
    """One topic."""
    return Call(method="GET", path=_topic_path(name), read=reading(Topic))


def delete_topic(name: str, *, cascade: bool = False) -> Call[None]:
    """Delete a topic; `cascade` ends its subscriptions, too, without which a topic that has any stays."""
    query = {"cascade": "true"} if cascade else {}
    return Call(method="DELETE", path=_topic_path(name), query=query, read=_nothing)


# Subscriptions


def subscribe(
    topic: str,
    filter: FilterLike = None,
    *,
    url: str | None = None,
    recipient: str | None = None,
    secret: str | None = None,
    expires: ExpiresLike = None,
    id: str | None = None,
    owner: str | None = None,
    location: list[float] | None = None,
    since: ExpiresLike = None,
) -> Call[Subscription]:
    """Subscribe; from the return on, every event accepted that the filter matches is notified to `url`.

    `topic` may be a subtree: "stocks.**" is "stocks" and all topics below it, also those that come later.
    Before those, what was published earlier and is still available: of `since` or later, if given ("now" for
    nothing of it, an instant, or a duration that long ago).
    """
    wanted = NewSubscription(
        topic=topic,
        filter=filter,
        url=url,
        recipient=recipient,
        secret=secret,
        expires=expires,
        id=id,
        owner=owner,
        location=location,
        since=since,
    )
    return Call(
        method="POST", path="/v1/subscriptions", body=encode(wanted.body()), read=reading(Subscription)
    )


def subscribe_many(subscriptions: Iterable[NewSubscription]) -> Plan[list[Subscription]]:
    """Subscribe many at once; a request takes all of its subscriptions or none of them."""
    read = reading(_Subscribed)
    done: list[Subscription] = []
    encoded = (encode(wanted.body()) for wanted in subscriptions)
    for chunk in chunks(encoded, MAX_SUBSCRIPTIONS, MAX_BODY_BYTES):
        try:
            answer: _Subscribed = yield Call(
                method="POST", path="/v1/subscriptions", body=array(chunk), read=read
            )
        except ProblemError as problem:
            raise problem.moved(len(done), tuple(one.id for one in done)) from None
        done += answer.subscriptions
    return done


def subscription(id: str) -> Call[Subscription]:
    """One subscription."""
    return Call(method="GET", path=_subscription_path(id), read=reading(Subscription))


def subscription_page(
    *,
    topic: str | None = None,
    owner: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    members: bool = False,
) -> Call[SubscriptionPage]:
    """One page of the list; `subscriptions` walks them all.

    `members`: of those to subtrees their parts, a topic and a server each, in place of the whole.
    """
    given = {
        "topic": topic,
        "owner": owner,
        "limit": None if limit is None else str(limit),
        "cursor": cursor,
        "members": "true" if members else None,
    }
    query = {name: value for name, value in given.items() if value is not None}
    return Call(method="GET", path="/v1/subscriptions", query=query, read=reading(SubscriptionPage))


def change(
    id: str,
    *,
    filter: FilterLike | Keep = KEEP,
    url: str | Keep | None = KEEP,
    recipient: str | Keep | None = KEEP,
    expires: ExpiresLike | Keep = KEEP,
) -> Plan[Subscription]:
    """Change parts of a subscription in place, without a gap: no event is lost or notified twice.

    What is not given stays. The interface replaces all three parts, so anything kept is read first: of two
    clients that change different parts at the same moment, the later one decides about all.
    """
    body: dict[str, Any] = {}
    old: Subscription | None = None
    if KEEP in (filter, url, recipient, expires):
        old = yield subscription(id)
    kept_sink = old.sink if old and old.sink else Sink(url="")
    new_filter = old.filter if isinstance(filter, Keep) and old else filter
    new_url = (kept_sink.url or None) if isinstance(url, Keep) else url
    new_recipient = kept_sink.recipient if isinstance(recipient, Keep) else recipient
    new_expires = old.expires if isinstance(expires, Keep) and old else expires
    if new_filter is not None:
        body["filter"] = new_filter
    if new_url is not None:
        body["sink"] = _sink(new_url, new_recipient)
    if not isinstance(new_expires, Keep | None):
        body["expires"] = expiry(new_expires)
    changed: Subscription = yield Call(
        method="PUT", path=_subscription_path(id), body=encode(body), read=reading(Subscription)
    )
    return changed


def renew(id: str, expires: ExpiresLike) -> Call[Subscription]:
    """Set a new expiry; None is never."""
    body = {"expires": None if expires is None else expiry(expires)}
    path = f"{_subscription_path(id)}/renew"
    return Call(method="POST", path=path, body=encode(body), read=reading(Subscription))


def pause(id: str) -> Call[Subscription]:
    """Keep notifications, in order, instead of sending them."""
    return Call(method="POST", path=f"{_subscription_path(id)}/pause", read=reading(Subscription))


def resume(id: str, *, url: str | None = None, recipient: str | None = None) -> Call[Subscription]:
    """Send what was kept and go on, at another address if one is given."""
    body = {} if url is None else {"sink": _sink(url, recipient)}
    path = f"{_subscription_path(id)}/resume"
    return Call(method="POST", path=path, body=encode(body), read=reading(Subscription))


def unsubscribe(id: str) -> Call[None]:
    """Cancel a subscription: events accepted after the return are not notified any more."""
    return Call(method="DELETE", path=_subscription_path(id), read=_nothing)


# Delivery


class _Attempts(msgspec.Struct):
    attempts: list[Attempt]


def attempts(id: str) -> Call[list[Attempt]]:
    """The last attempts at a subscription's address, the newest first."""
    read = reading(_Attempts)
    path = f"{_subscription_path(id)}/attempts"
    return Call(method="GET", path=path, read=lambda response: read(response).attempts)


def dead_letter_page(
    *, subscription: str | None = None, limit: int | None = None, after: str | None = None
) -> Call[DeadLetterPage]:
    """One page of the notifications that were given up; `dead_letters` walks them all."""
    given = {"subscription": subscription, "limit": None if limit is None else str(limit), "after": after}
    query = {name: value for name, value in given.items() if value is not None}
    return Call(method="GET", path="/v1/dead-letters", query=query, read=reading(DeadLetterPage))


def dead_letter(id: str) -> Call[DeadLetter]:
    """One of them, with what it would have said."""
    return Call(method="GET", path=_letter_path(id), read=reading(DeadLetter))


def resend(id: str) -> Call[Queued]:
    """Queue a dead letter again, for whoever of its subscriptions still lives."""
    return Call(method="POST", path=f"{_letter_path(id)}/resend", read=reading(Queued))


def recover(id: str, since: str | datetime) -> Plan[Queued]:
    """Queue again all dead letters of a subscription since a time, however many there are."""
    body = encode({"since": since if isinstance(since, str) else encoding.instant(since)})
    letters = notifications = 0
    while True:
        queued: Queued = yield Call(
            method="POST", path=f"{_subscription_path(id)}/recover", body=body, read=reading(Queued)
        )
        letters += queued.letters
        notifications += queued.notifications
        if not queued.more:
            return Queued(letters=letters, notifications=notifications)


def enable(id: str) -> Call[Delivery]:
    """Send to a subscription's disabled or failing address again, at once."""
    return Call(method="POST", path=f"{_subscription_path(id)}/enable", read=reading(Delivery))


def send_example(id: str) -> Call[Attempt]:
    """Send a made-up event, marked as an example, and return how the sink answered."""
    return Call(method="POST", path=f"{_subscription_path(id)}/example", read=reading(Attempt))


def rotate_secret(
    id: str, *, secret: str | None = None, grace: str | timedelta | None = None
) -> Call[Rotation]:
    """Sign with another secret; the one before counts for `grace` (a day), so that receivers can follow.

    Without a `secret` one is made here, so that a request that is repeated rotates once.
    """
    new = secret or new_secret()
    body: dict[str, Any] = {"secret": new}
    if grace is not None:
        body["grace"] = expiry(grace)
    read = reading(Rotation)
    return Call(
        method="POST",
        path=f"{_subscription_path(id)}/rotate-secret",
        body=encode(body),
        read=lambda response: msgspec.structs.replace(read(response), secret=new),
    )


# Events


def publish(topic: str, event: Mapping[str, Any], *, idempotency_key: str | None = None) -> Call[str]:
    """Publish one event and return its id; it is durable when this returns.

    `event` maps attributes to values; `$id`, `$time` and `$availability` may stand beside them.
    """
    read = reading(Published)
    return Call(
        method="POST",
        path=f"{_topic_path(topic)}/events",
        body=encoding.event(event, 0),
        headers=key_header(idempotency_key or uuid.uuid4().hex),
        read=lambda response: read(response).ids[0],
    )


def publish_many(
    topic: str,
    events: Iterable[Mapping[str, Any]],
    *,
    idempotency_key: str | None = None,
    on_accepted: Callable[[int], object] | None = None,
) -> Plan[Published]:
    """Publish events in order, in as many requests as the limits make of them.

    A request takes all of its events or none. When one is refused, the `ProblemError` counts `index` in
    `events`, and its `accepted` holds the ids of what earlier requests brought in. The same key over the
    same events publishes none of them a second time. `on_accepted` is told the number after each request.
    """
    key = idempotency_key or uuid.uuid4().hex
    read = reading(Published)
    ids: list[str] = []
    encoded = (encoding.event(event, index) for index, event in enumerate(events))
    for chunk in chunks(encoded, MAX_EVENTS, MAX_BODY_BYTES):
        # The first request carries the caller's key as it is, so that one request's ids are key/0, key/1, …
        chunk_key = f"{key}/{len(ids)}" if ids else key
        try:
            answer: Published = yield Call(
                method="POST",
                path=f"{_topic_path(topic)}/events",
                body=array(chunk),
                headers=key_header(chunk_key),
                read=read,
            )
        except ProblemError as problem:
            raise problem.moved(len(ids), tuple(ids)) from None
        ids += answer.ids
        if on_accepted is not None:
            on_accepted(answer.accepted)
    return Published(accepted=len(ids), ids=ids)


# The network


def servers() -> Call[list[Server]]:
    """The servers and how they are."""
    read = reading(_Servers)

    def with_ratio(response: httpx.Response) -> list[Server]:
        answer = read(response)
        if not answer.published:
            return answer.servers
        return [
            msgspec.structs.replace(server, hit_ratio=server.forwarded / answer.published)
            if server.forwarded is not None and server.hit_ratio is None
            else server
            for server in answer.servers
        ]

    return Call(method="GET", path="/v1/servers", read=with_ratio)


def routes(name: str | None = None) -> Call[Routes]:
    """The routing entries, a topic and a server each, and what is bound to names; all, or those in a name."""
    query = {} if name is None else {"name": name}
    return Call(method="GET", path="/v1/routes", query=query, read=reading(Routes))


def bind_route(
    name: str, *, servers: Iterable[str] | None = None, engine: str | None = None
) -> Call[Binding]:
    """Bind a topic's name or a subtree to servers that may host its subscriptions, a matcher, or both."""
    body = {"servers": None if servers is None else list(servers), "engine": engine}
    return Call(method="PUT", path=_route_path(name), body=encode(body), read=reading(Binding))


def unbind_route(name: str) -> Call[None]:
    """Take away what is bound to a name."""
    return Call(method="DELETE", path=_route_path(name), read=_nothing)


def tuning() -> Call[Tuning]:
    """How the precision of the summaries is chosen, and what was decided lately."""
    return Call(method="GET", path="/v1/tuning", read=reading(Tuning))


def tune(mode: str, *, precision: float | None = None) -> Call[Tuning]:
    """Choose how precision is chosen: "fixed" (at `precision`), "paper" or "model"."""
    body = {"mode": mode} if precision is None else {"mode": mode, "precision": precision}
    return Call(method="PUT", path="/v1/tuning", body=encode(body), read=reading(Tuning))


def create_key(
    name: str,
    scopes: Iterable[str],
    *,
    tenant: str = "",
    expires: ExpiresLike = None,
    quota: Mapping[str, float] | None = None,
) -> Call[Key]:
    """Make an API key with some of the scopes publish, subscribe and admin; its `key` is shown only here."""
    body: dict[str, Any] = {
        "name": name,
        "scopes": list(scopes),
        "tenant": tenant,
        "quota": dict(quota or {}),
    }
    if expires is not None:
        body["expires"] = expiry(expires)
    # A second one would be another key, and nobody would know of the first.
    return Call(method="POST", path="/v1/keys", body=encode(body), read=reading(Key), repeatable=False)


def keys(*, tenant: str | None = None) -> Call[list[Key]]:
    """All API keys that the caller may know of, without their secret parts."""
    listing = reading(_Keys)
    query = {} if tenant is None else {"tenant": tenant}
    return Call(method="GET", path="/v1/keys", query=query, read=lambda response: listing(response).keys)


def revoke_key(id: str) -> Call[None]:
    """From the answer on the key opens nothing."""
    return Call(method="DELETE", path=f"/v1/keys/{quote(id, safe='')}", read=lambda _: None)


def explain_event(topic: str, event: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """What would become of an event, tier by tier; nothing is published."""
    return _explain(topic, {"event": event})


def explain_filter(topic: str, filter: dict[str, Any] | str | None) -> Call[dict[str, Any]]:
    """What a filter would hear, which stored ones it covers and is covered by."""
    return _explain(topic, {"filter": filter})


def _explain(topic: str, body: dict[str, Any]) -> Call[dict[str, Any]]:
    path = f"{_topic_path(topic)}/explain"
    return Call(method="POST", path=path, body=encode(body), read=reading(dict[str, Any]))


def follow(topic: str, id: str) -> Call[dict[str, Any]]:
    """What became of a recent event."""
    path = f"{_topic_path(topic)}/events"
    return Call(method="GET", path=path, query={"id": id}, read=reading(dict[str, Any]))


def health() -> Call[Health]:
    """Whether the network can take work; not being ready is an answer, not an error."""

    def read(response: httpx.Response) -> Health:
        try:
            detail = msgspec.json.decode(response.content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            detail = {"detail": response.text[:200]}
        return Health(ready=response.is_success, detail=detail)

    return Call(method="GET", path="/readyz", read=read, understood=frozenset({503}))


# Parts


def _sink(url: str, recipient: str | None) -> dict[str, str]:
    return {"url": url} if recipient is None else {"url": url, "recipient": recipient}


def _topic_path(name: str) -> str:
    return f"/v1/topics/{quote(name, safe='')}"


def _route_path(name: str) -> str:
    return f"/v1/routes/{quote(name, safe='/*')}"


def _subscription_path(id: str) -> str:
    return f"/v1/subscriptions/{quote(id, safe='')}"


def _letter_path(id: str) -> str:
    return f"/v1/dead-letters/{quote(id, safe='')}"


def _nothing(_response: httpx.Response) -> None:
    return None
