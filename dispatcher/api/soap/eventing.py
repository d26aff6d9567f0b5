"""WS-Eventing: Subscribe, Renew, GetStatus, Unsubscribe, over the subscriptions that REST has, too.

The subscriber's endpoint becomes a sink of the scheme `soap` (`edn.formats.soap.address`); the filter is one
of ours, by its dialect. What a subscription is called stands in a reference parameter of its manager, in our
own namespace, because one consumer in use refuses WS-Eventing's.

The topic stands in `<e:Topic>`, in Subscribe or in a header, or in the door's URL, or in an action filter.
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
from dispatcher.api.soap.operations import Operation, Reply, Request, Table
from dispatcher.api.soap.publishing import named_topic
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

#: names a subscription, as a header of what its manager is asked
SUBSCRIPTION = f"{{{NAMESPACE}}}Subscription"
_RECIPIENT = f"{{{NAMESPACE}}}Recipient"
_ID = f"{{{NAMESPACE}}}Id"

#: what the submission of 2004 grants to whoever asks for no end: it has no word for none
LONGEST = "P3650D"
_DURATION = re.compile(r"(-?)P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(.*)", re.ASCII | re.DOTALL)
_NO_ZONE = re.compile(r".*T\d\d:\d\d:\d\d(?:\.\d+)?\Z", re.DOTALL)


def operations(log: Log, requests: SubscriptionRequests, subscriptions: Subscriptions) -> Table:
    table: Table = {}
    source = _Source(log, requests, subscriptions)
    for words in BY_NAMESPACE.values():
        for name, run, changes in (
            ("Subscribe", source.subscribe, True),
            ("Renew", source.renew, True),
            ("GetStatus", source.status, False),
            ("Unsubscribe", source.unsubscribe, True),
        ):
            table[words.tag(name)] = Operation(
                functools.partial(run, words), words.action(name), Need.SUBSCRIBE, changes
            )
    return table


@dataclass(frozen=True, slots=True)
class _Expiry:
    """What was asked for, and whether as a time, so that it is answered in kind."""

    text: str | None
    as_time: bool = False


class _Source:
    """The operations; each is given the vocabulary that it is asked in."""

    def __init__(self, log: Log, requests: SubscriptionRequests, subscriptions: Subscriptions) -> None:
        self._log = log
        self._requests = requests
        self._subscriptions = subscriptions

    async def subscribe(self, words: Vocabulary, request: Request) -> Reply:
        address = _sink(words, request)
        expiry = _expiry(words, request.payload)
        topic, filter = _filter(words, request)
        wanted: dict[str, Any] = {
            "topic": topic,
            "filter": filter,
            "sink": {"url": address.url()},
            "expires": expiry.text or (None if words.never is not None else LONGEST),
        }
        recipient = xml.text_of(request.payload.find(_RECIPIENT))
        if recipient:
            wanted["sink"]["recipient"] = recipient
        chosen = xml.text_of(request.payload.find(_ID))
        if chosen:
            wanted["id"] = chosen
        try:
            body = bodies.SubscriptionBody.model_validate(wanted)
            content, _, _ = await self._requests.subscribe(body.request(), request.caller)
        except ValidationError as error:
            raise faults.of_subscribing(words, invalid(list(error.errors()))) from None
        except EdnError as error:
            raise faults.of_subscribing(words, error) from None
        answer = _answer(words, "SubscribeResponse")
        manager = etree.SubElement(answer, words.tag("SubscriptionManager"))
        identifier = f'<e:Subscription xmlns:e="{NAMESPACE}">{content["id"]}</e:Subscription>'
        Endpoint(request.url, (identifier,)).write(manager, request.headers.edition)
        self._grant(words, answer, _microseconds(content["expires"]), expiry.as_time)
        return Reply(words.action("SubscribeResponse"), answer)

    async def renew(self, words: Vocabulary, request: Request) -> Reply:
        found = await self._find(words, request, words.faults.renew)
        expiry = _expiry(words, request.payload)
        text = expiry.text or (None if words.never is not None else LONGEST)
        try:
            log = self._log
            expires = None if text is None else parse_expires(text, log.now(), estimate=log.estimate())
            renewed = await self._subscriptions.renew(found.id, expires)
        except NotFound as error:
            raise faults.eventing_fault(words, words.faults.renew, error) from None
        except EdnError as error:
            raise faults.of_subscribing(words, error) from None
        answer = _answer(words, "RenewResponse")
        self._grant(words, answer, renewed.expires, expiry.as_time)
        return Reply(words.action("RenewResponse"), answer)

    async def status(self, words: Vocabulary, request: Request) -> Reply:
        found = await self._find(words, request, words.faults.unknown)
        answer = _answer(words, "GetStatusResponse")
        self._grant(words, answer, found.expires, as_time=False)
        return Reply(words.action("GetStatusResponse"), answer)

    async def unsubscribe(self, words: Vocabulary, request: Request) -> Reply:
        found = await self._find(words, request, words.faults.unknown)
        try:
            await self._subscriptions.delete(found.id, end="")
        except NotFound as error:
            raise faults.eventing_fault(words, words.faults.unknown, error) from None
        answer = _answer(words, "UnsubscribeResponse") if words.unsubscribe_answers else None
        return Reply(words.action("UnsubscribeResponse"), answer)

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
                f"which subscription? The header {SUBSCRIPTION}, a reference parameter of the answer to "
                "Subscribe, names it",
            )
        try:
            return await self._requests.find(request.caller, xml.text_of(element))
        except NotFound as error:
            raise faults.eventing_fault(words, fault, error) from None

    def _grant(self, words: Vocabulary, answer: Element, expires: int | None, as_time: bool) -> None:
        if expires is None:
            if words.never is None:
                return
            text = words.never
        elif as_time:
            text = rfc3339(expires)
        else:
            left = max(0, expires - self._log.now()) / 1e6
            text = f"PT{left:.3f}S"
        etree.SubElement(answer, words.tag(words.granted)).text = text


def _answer(words: Vocabulary, name: str) -> Element:
    return etree.Element(words.tag(name), nsmap={"wse": words.namespace})


def _microseconds(shown: str | None) -> int | None:
    return None if shown is None else instant(shown)


# -- what a Subscribe says --------------------------------------------------------------------------------


def _sink(words: Vocabulary, request: Request) -> SoapAddress:
    delivery = request.payload.find(words.tag("Delivery"))
    if delivery is None:
        raise faults.eventing_fault(words, words.faults.message, "Subscribe has no Delivery")
    layout = request.payload.find(words.tag("Format"))
    mode = delivery.get("Mode") if words is WSE_2004 else (None if layout is None else layout.get("Name"))
    if mode is not None and mode not in words.deliveries:
        holder = "SupportedDeliveryMode" if words is WSE_2004 else "SupportedDeliveryFormat"
        detail = etree.Element(words.tag(holder), nsmap={"wse": words.namespace})
        detail.text = next(iter(words.deliveries))
        known = " and ".join(words.deliveries)
        raise faults.eventing_fault(
            words, words.faults.delivery, f"there is no delivery {mode[:200]}; there are {known}", detail
        )
    target = delivery.find(words.tag("NotifyTo"))
    if target is None:
        name = words.faults.message if words is WSE_2004 else "NoDeliveryMechanismEstablished"
        raise faults.eventing_fault(words, name, "Delivery has no NotifyTo: where shall notifications go?")
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
    """As `parse_expires` takes it; years and months of a duration are 365 and 30 days."""
    element = payload.find(words.tag("Expires"))
    text = xml.text_of(element)
    if not text:
        return _Expiry(None)
    found = _DURATION.fullmatch(text)
    if found is None:
        return _Expiry(text + "Z" if _NO_ZONE.match(text) else text, as_time=True)
    sign, years, months, rest = found.groups()
    if sign:
        error = InvalidInput(f'expires "{text[:60]}" is not in the future', pointer="/expires")
        raise faults.of_subscribing(words, error)
    days = 365 * int(years or 0) + 30 * int(months or 0)
    if days:
        own = re.match(r"(\d{1,9})D", rest)
        days += int(own.group(1)) if own else 0
        rest = f"{days}D{rest[own.end() :] if own else rest}"
    if words.never is not None and not re.search(r"[1-9]", rest):
        return _Expiry(None)  # a duration of nothing asks for no end
    return _Expiry(f"P{rest}")


def _filter(words: Vocabulary, request: Request) -> tuple[str, Any]:
    """Topic and filter."""
    topic = named_topic(request)
    element = request.payload.find(words.tag("Filter"))
    filter: Any = None
    if element is not None:
        dialect = element.get("Dialect") or words.default_dialect
        # Some toolkits can send an element there and no text, others the reverse.
        text = xml.text_of(element[0]) if len(element) else xml.text_of(element)
        if dialect == ACTION:
            topic = topic or _topic_of_actions(words, text)
        elif not text:
            raise faults.eventing_fault(
                words,
                "EmptyFilter" if words is not WSE_2004 else words.faults.filter,
                "the Filter is empty; leave it out to be told of everything",
            )
        elif dialect == FILTER:
            filter = text
        elif dialect in words.xpath_dialects:
            filter = {"$xpath": _xpath(words, element, text)}
        else:
            raise _no_dialect(words, dialect)
    if not topic:
        raise faults.eventing_fault(
            words, words.faults.message, "Subscribe names no topic; <e:Topic>stocks</e:Topic> in it is right"
        )
    return topic, filter


def _xpath(words: Vocabulary, element: Element, text: str) -> str:
    """An XPath with our prefix for what its own prefixes mean where it stands."""
    prefixes = {prefix: uri for prefix, uri in element.nsmap.items() if prefix is not None}
    try:
        return expression.write(parsing.parse(text, prefixes)) if ":" in text else text
    except (InvalidFilter, TooLarge) as error:
        raise faults.eventing_fault(words, words.faults.filter, error) from None


def _topic_of_actions(words: Vocabulary, text: str) -> str | None:
    """The topic whose notifications have one of these actions."""
    topics = [one.removeprefix(TOPIC_ACTION) for one in text.split() if one.startswith(TOPIC_ACTION)]
    if len(topics) > 1:
        raise faults.eventing_fault(words, words.faults.filter, "actions of several topics; one is right")
    return topics[0] if topics else None


def _no_dialect(words: Vocabulary, dialect: str) -> Fault:
    detail = etree.Element(words.tag("SupportedDialect"), nsmap={"wse": words.namespace})
    detail.text = FILTER
    return faults.eventing_fault(
        words,
        words.faults.dialect,
        f"filters in the dialect {dialect[:200]} are not taken; {FILTER} and {XPATH} are",
        detail,
    )
