"""The operations of WS-Eventing: Subscribe, Renew, GetStatus, Unsubscribe.

The subscriber's endpoint becomes a sink with the scheme `soap` (`edn.formats.soap.address`). The id of a
subscription is a reference parameter of its manager, in edn's namespace: a consumer in use refuses that of
WS-Eventing. The topic is in `<e:Topic>`, in the body or in a header, in the URL, or in an action filter.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from lxml import etree
from pydantic import ValidationError

from dispatcher.api import bodies
from dispatcher.api.soap import faults
from dispatcher.api.soap.operations import Operation, Reply, Request, Table, tag
from dispatcher.auth.caller import Need
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.subscriptions.expiry import parse_expires
from dispatcher.subscriptions.requests import SubscriptionRequests
from dispatcher.subscriptions.service import Subscriptions
from edn.errors import EdnError, InvalidFilter, InvalidInput, NotFound, TooLarge
from edn.formats import xml
from edn.formats.event_xml import NAMESPACE
from edn.formats.soap.address import SoapAddress
from edn.formats.soap.addressing import Endpoint
from edn.formats.soap.envelope import Fault
from edn.formats.soap.eventing import ACTION, BY_NAMESPACE, FILTER, TOPIC_ACTION, WSE_2004, XPATH, Vocabulary
from edn.formats.xml import Element
from edn.http.asgi import invalid
from edn.model.coordinates import instant, rfc3339
from edn.model.xpath import expression, parsing

#: header with the id of a subscription
SUBSCRIPTION = tag("Subscription")

#: expiry in the vocabulary of 2004 when none is requested: it cannot express "never"
LONGEST = "P3650D"
_DURATION = re.compile(r"(-?)P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(.*)", re.ASCII | re.DOTALL)
_NO_ZONE = re.compile(r".*T\d\d:\d\d:\d\d(?:\.\d+)?\Z", re.DOTALL)


def operations(log: Log, requests: SubscriptionRequests, subscriptions: Subscriptions) -> Table:
    table: Table = {}
    source = _EventSource(log, requests, subscriptions)
    for words in BY_NAMESPACE.values():
        for name, run in (
            ("Subscribe", source.subscribe),
            ("Renew", source.renew),
            ("GetStatus", source.status),
            ("Unsubscribe", source.unsubscribe),
        ):
            table[words.tag(name)] = Operation(
                functools.partial(run, words), words.action(name), Need.SUBSCRIBE
            )
    return table


@dataclass(frozen=True, slots=True)
class _Expiry:
    text: str | None
    #: requested as a time, not a duration; the response has the same form
    as_time: bool = False


class _EventSource:
    """The operations, for both vocabularies."""

    def __init__(self, log: Log, requests: SubscriptionRequests, subscriptions: Subscriptions) -> None:
        self._log = log
        self._requests = requests
        self._subscriptions = subscriptions

    async def subscribe(self, words: Vocabulary, request: Request) -> Reply:
        address = _sink(words, request)
        expiry = _expiry(words, request.payload)
        topic, filter = _filter(words, request)
        try:
            body = bodies.SubscriptionBody.model_validate(
                {
                    "topic": topic,
                    "filter": filter,
                    "sink": {"url": address.url(), "recipient": request.text("Recipient") or None},
                    "expires": _text_or_longest(words, expiry),
                    "id": request.text("Id") or None,
                }
            )
            content, _, _ = await self._requests.subscribe(body.request(), request.caller)
        except ValidationError as error:
            raise faults.subscribe_fault(words, invalid(list(error.errors()))) from None
        except EdnError as error:
            raise faults.subscribe_fault(words, error) from None
        response = _element(words, "SubscribeResponse")
        manager = etree.SubElement(response, words.tag("SubscriptionManager"))
        identifier = f'<e:Subscription xmlns:e="{NAMESPACE}">{content["id"]}</e:Subscription>'
        Endpoint(request.url, (identifier,)).write(manager, request.headers.edition)
        expires = None if content["expires"] is None else instant(content["expires"])
        self._grant(words, response, expires, expiry.as_time)
        return Reply(words.action("SubscribeResponse"), response)

    async def renew(self, words: Vocabulary, request: Request) -> Reply:
        found = await self._find(words, request, words.faults.renew)
        expiry = _expiry(words, request.payload)
        text = _text_or_longest(words, expiry)
        try:
            log = self._log
            expires = None if text is None else parse_expires(text, log.now(), estimate=log.estimate())
            renewed = await self._subscriptions.renew(found.id, expires)
        except NotFound as error:
            raise faults.eventing_fault(words, words.faults.renew, error) from None
        except EdnError as error:
            raise faults.subscribe_fault(words, error) from None
        response = _element(words, "RenewResponse")
        self._grant(words, response, renewed.expires, expiry.as_time)
        return Reply(words.action("RenewResponse"), response)

    async def status(self, words: Vocabulary, request: Request) -> Reply:
        found = await self._find(words, request, words.faults.unknown)
        response = _element(words, "GetStatusResponse")
        self._grant(words, response, found.expires, as_time=False)
        return Reply(words.action("GetStatusResponse"), response)

    async def unsubscribe(self, words: Vocabulary, request: Request) -> Reply:
        found = await self._find(words, request, words.faults.unknown)
        try:
            await self._subscriptions.delete(found.id, end="")
        except NotFound as error:
            raise faults.eventing_fault(words, words.faults.unknown, error) from None
        response = _element(words, "UnsubscribeResponse") if words.unsubscribe_answers else None
        return Reply(words.action("UnsubscribeResponse"), response)

    async def _find(self, words: Vocabulary, request: Request, fault: str) -> Subscription:
        element = request.headers.other(SUBSCRIPTION)
        if element is None:
            element = request.headers.other(words.tag("Identifier"))
        if element is None:
            element = request.payload.find(SUBSCRIPTION)
        if element is None:
            raise faults.eventing_fault(
                words,
                words.faults.message,
                f"the header {SUBSCRIPTION} must name the subscription; it is a reference parameter of the "
                "response to Subscribe",
            )
        try:
            return await self._requests.find(request.caller, xml.text_of(element))
        except NotFound as error:
            raise faults.eventing_fault(words, fault, error) from None

    def _grant(self, words: Vocabulary, response: Element, expires: int | None, as_time: bool) -> None:
        if expires is None:
            if words.never is None:
                return
            text = words.never
        elif as_time:
            text = rfc3339(expires)
        else:
            left = max(0, expires - self._log.now()) / 1e6
            text = f"PT{left:.3f}S"
        etree.SubElement(response, words.tag(words.granted)).text = text


def _element(words: Vocabulary, name: str) -> Element:
    return etree.Element(words.tag(name), nsmap={"wse": words.namespace})


def _text_or_longest(words: Vocabulary, expiry: _Expiry) -> str | None:
    return expiry.text or (None if words.never is not None else LONGEST)


# -- the content of Subscribe -----------------------------------------------------------------------------


def _sink(words: Vocabulary, request: Request) -> SoapAddress:
    delivery = request.payload.find(words.tag("Delivery"))
    if delivery is None:
        raise faults.eventing_fault(words, words.faults.message, "Subscribe must have a Delivery")
    layout = request.payload.find(words.tag("Format"))
    mode = delivery.get("Mode") if words is WSE_2004 else (None if layout is None else layout.get("Name"))
    if mode is not None and mode not in words.deliveries:
        holder = "SupportedDeliveryMode" if words is WSE_2004 else "SupportedDeliveryFormat"
        detail = _element(words, holder)
        detail.text = next(iter(words.deliveries))
        known = " or ".join(words.deliveries)
        raise faults.eventing_fault(
            words, words.faults.delivery, f"the delivery must be {known}, got {mode[:200]}", detail
        )
    target = delivery.find(words.tag("NotifyTo"))
    if target is None:
        name = words.faults.message if words is WSE_2004 else "NoDeliveryMechanismEstablished"
        raise faults.eventing_fault(
            words, name, "Delivery must have a NotifyTo, the endpoint of notifications"
        )
    end = request.payload.find(words.tag("EndTo"))
    try:
        return SoapAddress(
            Endpoint.read(target),
            request.envelope.version,
            words,
            request.headers.edition,
            mode is not None and words.deliveries[mode],
            None if end is None else Endpoint.read(end),
            request.url if end is not None and words is WSE_2004 else "",
        )
    except Fault as fault:
        raise faults.eventing_fault(words, words.faults.endpoint, fault.reason) from None


def _expiry(words: Vocabulary, payload: Element) -> _Expiry:
    """Converts Expires for `parse_expires`; years and months of a duration are 365 and 30 days."""
    element = payload.find(words.tag("Expires"))
    text = xml.text_of(element)
    if not text:
        return _Expiry(None)
    found = _DURATION.fullmatch(text)
    if found is None:
        return _Expiry(text + "Z" if _NO_ZONE.match(text) else text, as_time=True)
    sign, years, months, rest = found.groups()
    if sign:
        error = InvalidInput(f'expires must be in the future, got "{text[:60]}"', pointer="/expires")
        raise faults.subscribe_fault(words, error)
    days = 365 * int(years or 0) + 30 * int(months or 0)
    if days:
        own = re.match(r"(\d{1,9})D", rest)
        days += int(own.group(1)) if own else 0
        rest = f"{days}D{rest[own.end() :] if own else rest}"
    if words.never is not None and not re.search(r"[1-9]", rest):
        return _Expiry(None)  # an empty duration requests no expiry
    return _Expiry(f"P{rest}")


def _filter(words: Vocabulary, request: Request) -> tuple[str, Any]:
    topic = request.topic
    element = request.payload.find(words.tag("Filter"))
    filter: Any = None
    if element is not None:
        dialect = element.get("Dialect") or words.default_dialect
        # Some toolkits can only send an element, others only text.
        text = xml.text_of(element[0]) if len(element) else xml.text_of(element)
        if dialect == ACTION:
            topic = topic or _topic_of_actions(words, text)
        elif not text:
            raise faults.eventing_fault(
                words,
                "EmptyFilter" if words is not WSE_2004 else words.faults.filter,
                "Filter must not be empty; omit it to match every event",
            )
        elif dialect == FILTER:
            filter = text
        elif dialect in words.xpath_dialects:
            filter = {"$xpath": _xpath(words, element, text)}
        else:
            raise _no_dialect(words, dialect)
    if not topic:
        raise faults.eventing_fault(
            words, words.faults.message, "Subscribe must name a topic, such as <e:Topic>stocks</e:Topic>"
        )
    return topic, filter


def _xpath(words: Vocabulary, element: Element, text: str) -> str:
    """Replaces the prefixes of an XPath, as declared in the message, by edn's."""
    prefixes = {prefix: uri for prefix, uri in element.nsmap.items() if prefix is not None}
    try:
        return expression.write(parsing.parse(text, prefixes)) if ":" in text else text
    except (InvalidFilter, TooLarge) as error:
        raise faults.eventing_fault(words, words.faults.filter, error) from None


def _topic_of_actions(words: Vocabulary, text: str) -> str | None:
    topics = [one.removeprefix(TOPIC_ACTION) for one in text.split() if one.startswith(TOPIC_ACTION)]
    if len(topics) > 1:
        raise faults.eventing_fault(
            words, words.faults.filter, f"the actions must be of one topic, got {len(topics)}"
        )
    return topics[0] if topics else None


def _no_dialect(words: Vocabulary, dialect: str) -> Fault:
    detail = _element(words, "SupportedDialect")
    detail.text = FILTER
    return faults.eventing_fault(
        words,
        words.faults.dialect,
        f"the dialect of Filter must be {FILTER} or {XPATH}, got {dialect[:200]}",
        detail,
    )
