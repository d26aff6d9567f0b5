"""The calls of the REST interface, each described once; `Client` and `AsyncClient` both speak them.

A function here returns a `Call` (one request) or is a plan (several). None of them does any I/O. Here are
topics, subscriptions and events; `delivery`, `network` and `moving` have the others.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import httpx
import msgspec

from edn.api.events import Published
from edn.api.subscriptions import Sink, Subscription, SubscriptionList, SubscriptionPage
from edn.api.topics import Topic, TopicList
from edn.client import encoding
from edn.client.conversation import Call, Plan, reading
from edn.client.encoding import (
    ExpiresLike,
    array,
    chunks,
    encode,
    expiry,
    given,
    key_header,
    subscription_path,
    topic_path,
)
from edn.client.problems import ProblemError
from edn.errors import InvalidInput

#: limits of one request; a batch beyond them is split
MAX_BODY_BYTES = 1024 * 1024
MAX_EVENTS = 500
MAX_SUBSCRIPTIONS = 1000

T = TypeVar("T")

#: a filter as JSON, as text, or None: everything
FilterLike = Mapping[str, Any] | str | None


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
        if self.url is None and self.recipient is not None:
            raise InvalidInput("a recipient is somebody behind an address: give a url, too", pointer="/sink")
        sink = given(url=self.url, recipient=self.recipient, secret=self.secret)
        return given(
            topic=self.topic,
            id=self.id or str(uuid.uuid4()),
            filter=self.filter,
            sink=None if self.url is None else sink,
            expires=expiry(self.expires),
            owner=self.owner,
            location=self.location,
            **{"from": expiry(self.since)},
        )


# Topics


def create_topic(
    name: str,
    attributes: Mapping[str, str],
    *,
    engine: str | None = None,
    availability: float | str | None = None,
) -> Call[Topic]:
    """Create a topic, or change the one of this name; attributes map a name to its type."""
    body = given(attributes=dict(attributes), engine=engine, availability=availability)
    return Call(method="PUT", path=topic_path(name), body=encode(body), read=reading(Topic))


def topics() -> Call[list[Topic]]:
    """All topics."""
    read = reading(TopicList)
    return Call(method="GET", path="/v1/topics", read=lambda response: read(response).topics)


def topic(name: str) -> Call[Topic]:
    """One topic."""
    return Call(method="GET", path=topic_path(name), read=reading(Topic))


def delete_topic(name: str, *, cascade: bool = False) -> Call[None]:
    """Delete a topic; `cascade` ends its subscriptions, too, without which a topic that has any stays."""
    query = {"cascade": "true"} if cascade else {}
    return Call(method="DELETE", path=topic_path(name), query=query, read=_nothing)


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
    read = reading(SubscriptionList)
    done: list[Subscription] = []
    encoded = (encode(wanted.body()) for wanted in subscriptions)
    for chunk in chunks(encoded, MAX_SUBSCRIPTIONS, MAX_BODY_BYTES):
        try:
            answer: SubscriptionList = yield Call(
                method="POST", path="/v1/subscriptions", body=array(chunk), read=read
            )
        except ProblemError as problem:
            raise problem.moved(len(done), tuple(one.id for one in done)) from None
        done += answer.subscriptions
    return done


def subscription(id: str) -> Call[Subscription]:
    """One subscription."""
    return Call(method="GET", path=subscription_path(id), read=reading(Subscription))


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
    query = given(
        topic=topic,
        owner=owner,
        limit=None if limit is None else str(limit),
        cursor=cursor,
        members="true" if members else None,
    )
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
    old: Subscription | None = None
    if KEEP in (filter, url, recipient, expires):
        old = yield subscription(id)
    kept_sink = old.sink if old and old.sink else Sink(url="")
    new_filter = old.filter if isinstance(filter, Keep) and old else filter
    new_url = (kept_sink.url or None) if isinstance(url, Keep) else url
    new_recipient = kept_sink.recipient if isinstance(recipient, Keep) else recipient
    new_expires = old.expires if isinstance(expires, Keep) and old else expires
    sink = given(url=new_url, recipient=new_recipient)
    if isinstance(url, Keep):
        sink |= given(format=kept_sink.format, consent=kept_sink.consent)
    body = given(
        filter=new_filter,
        sink=None if new_url is None else sink,
        expires=None if isinstance(new_expires, Keep) else expiry(new_expires),
    )
    changed: Subscription = yield Call(
        method="PUT", path=subscription_path(id), body=encode(body), read=reading(Subscription)
    )
    return changed


def renew(id: str, expires: ExpiresLike) -> Call[Subscription]:
    """Set a new expiry; None is never."""
    body = {"expires": expiry(expires)}
    path = f"{subscription_path(id)}/renew"
    return Call(method="POST", path=path, body=encode(body), read=reading(Subscription))


def pause(id: str) -> Call[Subscription]:
    """Keep notifications, in order, instead of sending them."""
    return Call(method="POST", path=f"{subscription_path(id)}/pause", read=reading(Subscription))


def resume(id: str, *, url: str | None = None, recipient: str | None = None) -> Call[Subscription]:
    """Send what was kept and go on, at another address if one is given."""
    body = {} if url is None else {"sink": given(url=url, recipient=recipient)}
    path = f"{subscription_path(id)}/resume"
    return Call(method="POST", path=path, body=encode(body), read=reading(Subscription))


def unsubscribe(id: str) -> Call[None]:
    """Cancel a subscription: events accepted after the return are not notified any more."""
    return Call(method="DELETE", path=subscription_path(id), read=_nothing)


# Events


def publish(topic: str, event: Mapping[str, Any], *, idempotency_key: str | None = None) -> Call[str]:
    """Publish one event and return its id; it is durable when this returns.

    `event` maps attributes to values; `$id`, `$time` and `$availability` may stand beside them.
    """
    read = reading(Published)
    return Call(
        method="POST",
        path=f"{topic_path(topic)}/events",
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
                path=f"{topic_path(topic)}/events",
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


# Explaining


def explain_event(topic: str, event: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """What would become of an event, tier by tier; nothing is published."""
    return _explain(topic, {"event": event})


def explain_filter(topic: str, filter: dict[str, Any] | str | None) -> Call[dict[str, Any]]:
    """What a filter would hear, which stored ones it covers and is covered by."""
    return _explain(topic, {"filter": filter})


def _explain(topic: str, body: dict[str, Any]) -> Call[dict[str, Any]]:
    path = f"{topic_path(topic)}/explain"
    return Call(method="POST", path=path, body=encode(body), read=reading(dict[str, Any]))


def follow(topic: str, id: str) -> Call[dict[str, Any]]:
    """What became of a recent event."""
    path = f"{topic_path(topic)}/events"
    return Call(method="GET", path=path, query={"id": id}, read=reading(dict[str, Any]))


# Parts


def _nothing(_response: httpx.Response) -> None:
    return None
