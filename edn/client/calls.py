"""Calls of topics, subscriptions and events, shared by `Client` and `AsyncClient`.

Each function returns a `Call` (one request) or is a plan (several requests), and does no I/O. `delivery`,
`network` and `moving` contain the other calls.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from edn.api.events import Published
from edn.api.subscriptions import Ended, Sink, Subscription, SubscriptionList, SubscriptionPage
from edn.api.topics import Topic, TopicList
from edn.client import encoding
from edn.client.conversation import Call, Plan, delete, reading, request
from edn.client.encoding import (
    ExpiresLike,
    array,
    chunks,
    drop_none,
    encode,
    expiry,
    key_header,
    subscription_path,
    topic_path,
)
from edn.client.problems import ProblemError
from edn.errors import InvalidInput

#: limits of one request; larger batches are split
MAX_BODY_BYTES = 1024 * 1024
MAX_EVENTS = 500
MAX_SUBSCRIPTIONS = 1000

T = TypeVar("T")

#: a filter as JSON or text; None matches everything
FilterLike = Mapping[str, Any] | str | None


class Keep(Enum):
    """The default of `change`: keep this part."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


class NewSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription to create. Without a `url` it is a stream."""

    #: topic, or subtree: "stocks.**" is "stocks" and all topics below it; None if all steps of `sequence`
    #: have one
    topic: str | None = None
    filter: FilterLike = None
    #: in place of a filter: steps {"topic", "filter", "times", "unless"} whose events follow each other
    sequence: Sequence[Mapping[str, Any]] | None = None
    #: attributes whose values all events of a sequence share
    by: Sequence[str] | None = None
    #: longest time between the first and the last event of a sequence, such as "PT5M"
    within: str | None = None
    #: how long events of a sequence are put in order
    settle: str | None = None
    url: str | None = None
    #: recipient behind the URL
    recipient: str | None = None
    #: "json" (the default), "cloudevents-binary", "cloudevents-structured" or "cloudevents-batch"
    format: str | None = None
    #: ask the sink for its consent before the first delivery
    consent: bool | None = None
    #: signing secret, "whsec_…"; None: the network generates one and returns it once
    secret: str | None = None
    expires: ExpiresLike = None
    #: id chosen by the client; repeating it creates no second subscription
    id: str | None = None
    owner: str | None = None
    #: location of the subscriber, in the servers' coordinates
    location: list[float] | None = None
    #: replay of retained events from "now" (none), a time, or a duration ago; None: all of them
    since: ExpiresLike = None
    #: static headers of every request
    headers: Mapping[str, str] | None = None
    #: such as {"type": "bearer", "token": "…"}; types: bearer, basic, api_key, oauth2, certificate
    credentials: Mapping[str, Any] | None = None
    #: seconds or a duration per attempt
    timeout: float | str | None = None
    #: "schedule" (delays) or "exponential" ("first", "factor", "longest"), "give_up", "permanent" (statuses)
    retry: Mapping[str, Any] | None = None
    #: deliveries per second
    rate: float | None = None
    #: False: a failing notification does not hold back later ones
    ordered: bool | None = None

    def __repr__(self) -> str:
        # Logs and failed assertions must not print secrets.
        return f"NewSubscription(topic={self.topic!r}, url={self.url!r}, id={self.id!r}, …)"

    def body(self) -> dict[str, Any]:
        sink = drop_none(
            recipient=self.recipient,
            format=self.format,
            consent=self.consent,
            secret=self.secret,
            headers=self.headers,
            credentials=self.credentials,
            timeout=self.timeout,
            retry=self.retry,
            rate=self.rate,
            ordered=self.ordered,
        )
        if self.url is None and sink:
            raise InvalidInput(f"{next(iter(sink))} requires a url", pointer="/sink")
        return drop_none(
            topic=self.topic,
            id=self.id or str(uuid.uuid4()),
            filter=self.filter,
            sequence=self.sequence,
            by=self.by,
            within=self.within,
            settle=self.settle,
            sink=None if self.url is None else {"url": self.url, **sink},
            expires=expiry(self.expires),
            owner=self.owner,
            location=self.location,
            **{"from": expiry(self.since)},
        )


# Topics


def create_topic(
    name: str,
    attributes: Mapping[str, str | list[str]],
    *,
    engine: str | None = None,
    availability: float | str | None = None,
    closed: bool | None = None,
    advertising: str | None = None,
    only_new: bool = False,
    revision: int | None = None,
) -> Call[Topic]:
    """Creates or changes a topic; `attributes` maps names to types, `["string"]` for an array of strings.

    `closed`: whether events with other fields are refused. `advertising`: what happens to events that their
    publishers have not advertised: "off", "deliver" (dropped) or "guard" (refused). `only_new` refuses a
    topic that exists, `revision` one that was changed since; both with the status 412.
    """
    body = drop_none(
        attributes=dict(attributes),
        engine=engine,
        availability=availability,
        closed=closed,
        advertising=advertising,
    )
    headers = (
        {"If-None-Match": "*"} if only_new else {} if revision is None else {"If-Match": f'"{revision}"'}
    )
    call = request("PUT", topic_path(name), Topic, body)
    # Repeated after a lost answer, it would refuse the topic that it has created itself.
    return replace(call, headers=headers, is_repeatable=not headers)


def topics(*, tenant: str | None = None) -> Call[list[Topic]]:
    """Returns all topics; an operator may name a tenant, or "*" for the topics of all."""
    call = request("GET", "/v1/topics", TopicList, query=drop_none(tenant=tenant))
    return call.then(lambda found: found.topics)


def topic(name: str) -> Call[Topic]:
    """Returns one topic."""
    return request("GET", topic_path(name), Topic)


def delete_topic(name: str, *, cascade: bool = False) -> Call[None]:
    """Deletes a topic; with `cascade` also its subscriptions, without it a topic that has any is refused."""
    return delete(topic_path(name), query={"cascade": "true"} if cascade else {})


# Subscriptions


def subscribe(
    topic: str | None = None,
    filter: FilterLike = None,
    *,
    sequence: Sequence[Mapping[str, Any]] | None = None,
    by: Sequence[str] | None = None,
    within: str | None = None,
    settle: str | None = None,
    url: str | None = None,
    recipient: str | None = None,
    format: str | None = None,
    consent: bool | None = None,
    secret: str | None = None,
    expires: ExpiresLike = None,
    id: str | None = None,
    owner: str | None = None,
    location: list[float] | None = None,
    since: ExpiresLike = None,
    headers: Mapping[str, str] | None = None,
    credentials: Mapping[str, Any] | None = None,
    timeout: float | str | None = None,
    retry: Mapping[str, Any] | None = None,
    rate: float | None = None,
    ordered: bool | None = None,
) -> Call[Subscription]:
    """Subscribes: every matching event that is accepted after this returns is delivered to `url`.

    Without a `url` the subscription is a stream, which `Client.stream` reads.

    `topic` may be a subtree: "stocks.**" is "stocks" and all topics below it, also later ones. Retained
    events are replayed first; `since` limits them ("now": none, a time, or a duration ago).

    `sequence`, in place of a filter: notify once when events follow each other. `by`, `within` and `settle`
    belong to it, see `NewSubscription`.

    `headers`, `credentials`, `timeout`, `retry`, `rate` and `ordered` are settings of the sink, see
    `NewSubscription`.
    """
    subscription = NewSubscription(
        topic=topic,
        filter=filter,
        sequence=sequence,
        by=by,
        within=within,
        settle=settle,
        url=url,
        recipient=recipient,
        format=format,
        consent=consent,
        secret=secret,
        expires=expires,
        id=id,
        owner=owner,
        location=location,
        since=since,
        headers=headers,
        credentials=credentials,
        timeout=timeout,
        retry=retry,
        rate=rate,
        ordered=ordered,
    )
    return request("POST", "/v1/subscriptions", Subscription, subscription.body())


def subscribe_many(subscriptions: Iterable[NewSubscription]) -> Plan[list[Subscription]]:
    """Creates many subscriptions; those of one request are created together or not at all."""
    read = reading(SubscriptionList)
    done: list[Subscription] = []
    encoded = (encode(one.body()) for one in subscriptions)
    for chunk in chunks(encoded, MAX_SUBSCRIPTIONS, MAX_BODY_BYTES):
        try:
            answer: SubscriptionList = yield Call(
                method="POST", path="/v1/subscriptions", body=array(chunk), read=read
            )
        except ProblemError as problem:
            raise problem.shifted(len(done), tuple(one.id for one in done)) from None
        done += answer.subscriptions
    return done


def subscription(id: str) -> Call[Subscription]:
    """Returns one subscription."""
    return request("GET", subscription_path(id), Subscription)


def subscription_page(
    *,
    topic: str | None = None,
    owner: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    members: bool = False,
    dead: bool = False,
) -> Call[SubscriptionPage]:
    """Returns one page of subscriptions; `subscriptions` iterates over all of them.

    `members`: list the members of subtree subscriptions instead of the subscriptions themselves. `dead`: only
    those that no advertisement of their topic can match.
    """
    query = drop_none(
        topic=topic,
        owner=owner,
        limit=None if limit is None else str(limit),
        cursor=cursor,
        members="true" if members else None,
        dead="true" if dead else None,
    )
    return request("GET", "/v1/subscriptions", SubscriptionPage, query=query)


def change(
    id: str,
    *,
    filter: FilterLike | Keep = KEEP,
    url: str | Keep | None = KEEP,
    recipient: str | Keep | None = KEEP,
    format: str | Keep | None = KEEP,
    consent: bool | Keep | None = KEEP,
    expires: ExpiresLike | Keep = KEEP,
    headers: Mapping[str, str] | Keep | None = KEEP,
    credentials: Mapping[str, Any] | Keep | None = KEEP,
    timeout: float | str | Keep | None = KEEP,
    retry: Mapping[str, Any] | Keep | None = KEEP,
    rate: float | Keep | None = KEEP,
    ordered: bool | Keep | None = KEEP,
) -> Plan[Subscription]:
    """Changes parts of a subscription in place; no event is lost or delivered twice.

    Another `url` does not keep format, consent, headers, credentials and the other settings of the previous
    one.

    The interface replaces all parts, so the parts to keep are read first: if two clients change different
    parts at the same time, the later one wins for all of them.
    """
    old: Subscription | None = None
    settings = {
        "format": format,
        "consent": consent,
        "headers": headers,
        "credentials": credentials,
        "timeout": timeout,
        "retry": retry,
        "rate": rate,
        "ordered": ordered,
    }
    # The settings of another URL are not kept.
    keeping = [filter, url, recipient, expires, *(settings.values() if url is KEEP else ())]
    if any(isinstance(one, Keep) for one in keeping):
        old = yield subscription(id)
    kept_sink = old.sink if old and old.sink else Sink(url="")
    new_filter = old.filter if isinstance(filter, Keep) and old else filter
    new_url = (kept_sink.url or None) if isinstance(url, Keep) else url
    new_recipient = kept_sink.recipient if isinstance(recipient, Keep) else recipient
    new_expires = old.expires if isinstance(expires, Keep) and old else expires
    kept = kept_sink if isinstance(url, Keep) else Sink(url="")
    for name, value in settings.items():
        if isinstance(value, Keep):
            # The type of credentials alone keeps them.
            settings[name] = _given(getattr(kept, name))
    sink = drop_none(url=new_url, recipient=new_recipient, **settings)
    body = drop_none(
        filter=new_filter,
        **(_given_sequence(old) if old is not None and isinstance(filter, Keep) else {}),
        sink=None if new_url is None else sink,
        expires=None if isinstance(new_expires, Keep) else expiry(new_expires),
    )
    changed: Subscription = yield request("PUT", subscription_path(id), Subscription, body)
    return changed


def _given_sequence(found: Subscription) -> dict[str, Any]:
    """Returns the sequence of a subscription as it is given in a request."""
    if found.sequence is None:
        return {}
    steps = [_given(step) for step in found.sequence]
    return drop_none(sequence=steps, by=found.by, within=found.within, settle=found.settle)


def unsubscribe_covered(
    sequence: Sequence[Mapping[str, Any]], *, topic: str | None = None, owner: str | None = None
) -> Call[Ended]:
    """Ends an owner's sequences of the same length and topics whose steps these steps cover."""
    steps = encode(list(sequence)).decode()
    query = drop_none(topic=topic, owner=owner, sequence=steps)
    return request("DELETE", "/v1/subscriptions", Ended, query=query)


def _given(value: Any) -> Any:
    """Returns a part of an answer as it is given in a request, without empty fields."""
    if not isinstance(value, msgspec.Struct):
        return value
    return {name: _given(one) for name, one in msgspec.structs.asdict(value).items() if one is not None}


def renew(id: str, expires: ExpiresLike) -> Call[Subscription]:
    """Sets a new expiry; None is never."""
    return request("POST", f"{subscription_path(id)}/renew", Subscription, {"expires": expiry(expires)})


def pause(id: str) -> Call[Subscription]:
    """Pauses a subscription; its notifications are buffered in order."""
    return request("POST", f"{subscription_path(id)}/pause", Subscription)


def resume(id: str, *, url: str | None = None, recipient: str | None = None) -> Call[Subscription]:
    """Resumes a paused subscription, optionally with another URL; buffered notifications come first."""
    body = {} if url is None else {"sink": drop_none(url=url, recipient=recipient)}
    return request("POST", f"{subscription_path(id)}/resume", Subscription, body)


def unsubscribe(id: str) -> Call[None]:
    """Ends a subscription; events accepted after this returns are not delivered to it."""
    return delete(subscription_path(id))


# Events


def publish(topic: str, event: Mapping[str, Any] | bytes, *, idempotency_key: str | None = None) -> Call[str]:
    """Publishes one event and returns its id; it is durable when this returns.

    The id is empty if the topic drops events that are not advertised, and nothing covered this one.
    `event` is any JSON object; it may also contain `$id`, `$time` and `$availability`. As bytes, it is JSON
    text, which subscribers get as it is.
    """
    call = _publish(topic, encoding.event(event, 0), idempotency_key or uuid.uuid4().hex)
    return call.then(lambda published: published.ids[0] if published.ids else "")


def publish_many(
    topic: str,
    events: Iterable[Mapping[str, Any] | bytes],
    *,
    idempotency_key: str | None = None,
    on_accepted: Callable[[int], object] | None = None,
) -> Plan[Published]:
    """Publishes events in order, in as many requests as the limits require.

    The events of one request are accepted together or not at all. If an event is refused, the `index` of the
    `ProblemError` is its index in `events`, and `accepted` contains the ids of earlier requests. Repeating
    the call with the same key publishes no event twice. `on_accepted` is called after each request with the
    number of its events.
    """
    key = idempotency_key or uuid.uuid4().hex
    ids: list[str] = []
    dropped: list[int] = []
    encoded = (encoding.event(event, index) for index, event in enumerate(events))
    for chunk in chunks(encoded, MAX_EVENTS, MAX_BODY_BYTES):
        # The first request has the unchanged key, so that the ids of its events are key/0, key/1, …
        sent = len(ids) + len(dropped)
        chunk_key = f"{key}/{sent}" if sent else key
        try:
            answer: Published = yield _publish(topic, array(chunk), chunk_key)
        except ProblemError as problem:
            raise problem.shifted(sent, tuple(ids)) from None
        ids += answer.ids
        dropped += [sent + place for place in answer.unadvertised]
        if on_accepted is not None:
            on_accepted(answer.accepted)
    return Published(accepted=len(ids), ids=ids, unadvertised=dropped)


def _publish(topic: str, body: bytes, key: str) -> Call[Published]:
    path = f"{topic_path(topic)}/events"
    read, headers = reading(Published), key_header(key)
    return Call(method="POST", path=path, body=body, headers=headers, read=read, is_spread=True)


# Explanations


def explain_event(
    topic: str, event: Mapping[str, Any], *, subscription: str | None = None
) -> Call[dict[str, Any]]:
    """Returns the routing and matching of an event; nothing is published.

    The field "subscription" of the answer says why the given subscription matches or not.
    """
    return _explain(topic, drop_none(event=event, subscription=subscription))


def explain_filter(topic: str, filter: dict[str, Any] | str | None) -> Call[dict[str, Any]]:
    """Returns the reach of a filter, and the stored filters that it covers or is covered by."""
    return _explain(topic, {"filter": filter})


def _explain(topic: str, body: dict[str, Any]) -> Call[dict[str, Any]]:
    return request("POST", f"{topic_path(topic)}/explain", dict[str, Any], body)


def follow(topic: str, id: str) -> Call[dict[str, Any]]:
    """Returns the trace of a recent event."""
    return request("GET", f"{topic_path(topic)}/events", dict[str, Any], query={"id": id})
