"""The sink of soap: addresses: sends notifications as SOAP messages, by WS-Eventing.

Unwrapped, each event is a message, in order (`post_sequence`). Wrapped, a delivery batch is one message. The
id of a message consists of the webhook-id and the event's place, so that a receiver recognizes a message that
is repeated after a crash.

A body without notifications reports the end of a subscription (see `ingest.subscription_end`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
from lxml import etree

from edn.errors import InvalidSink
from edn.formats import event_xml, xml
from edn.formats.event_xml import NAMESPACE
from edn.formats.soap import addressing, envelope, eventing
from edn.formats.soap.address import SoapAddress
from edn.formats.soap.addressing import Endpoint
from edn.formats.xml import Element
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.outbox.bodies import End
from edn_server.sinks.base import Answer, Message
from edn_server.sinks.post_sequence import PostSequence
from edn_server.sinks.resolver import Resolver

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


class _Event(msgspec.Struct):
    id: str
    time: str
    attributes: dict[str, Any]


class _Match(msgspec.Struct):
    subscription: str
    recipient: str | None = None


class _SequenceEvent(_Event):
    topic: str


class _Entry(msgspec.Struct):
    topic: str
    matches: list[_Match]
    event: _Event | None = None
    #: of a sequence
    events: list[_SequenceEvent] = []


class _Content(msgspec.Struct):
    notifications: list[_Entry]
    end: End | None = None


_content = msgspec.json.Decoder(_Content)


@owned("loop")
class SoapSink:
    def __init__(self, settings: Settings, resolver: Resolver | None = None) -> None:
        self._sequence = PostSequence(settings, resolver)

    async def close(self) -> None:
        await self._sequence.close()

    async def send(self, message: Message) -> Answer:
        try:
            address = SoapAddress.parse(message.url)
        except InvalidSink as error:
            return Answer(None, reason=error.detail, permanent=True)
        return await self._sequence.send(message.webhook_id, _posts(address, message))


def _posts(address: SoapAddress, message: Message) -> Iterator[Message]:
    content = _content.decode(message.body)
    for place, (action, payload, matches) in enumerate(_messages(address, content)):
        name = f"{message.webhook_id}.{place}"
        yield replace(
            message,
            url=address.sink.address,
            webhook_id=name,
            body=compose(address, name, action, payload, matches),
            sign=None,  # SOAP messages are not signed
            content_type=address.version.content_type(action),
            headers=(("soapaction", f'"{action}"'),) if address.version is envelope.SOAP_11 else (),
        )


def _messages(address: SoapAddress, content: _Content) -> list[tuple[str, Element, list[_Match]]]:
    """Returns (action, payload, matches) of each message."""
    words = address.vocabulary
    if content.end is not None:
        return [(words.action("SubscriptionEnd"), _end(address, content.end), [])]
    if not address.wrapped:
        return [
            (eventing.TOPIC_ACTION + entry.topic, _event(entry), entry.matches)
            for entry in content.notifications
        ]
    notify = etree.Element(words.tag("Notify"), nsmap={"wse": words.namespace, "e": NAMESPACE})
    topics = {entry.topic for entry in content.notifications}
    if len(topics) == 1:
        notify.set("actionURI", eventing.TOPIC_ACTION + topics.pop())
    holder = etree.SubElement(notify, f"{{{NAMESPACE}}}notifications")
    for entry in content.notifications:
        holder.append(_event(entry))
        for match in entry.matches:
            holder[-1].append(_match(match))
    return [(f"{words.namespace}/WrappedSinkPortType/NotifyEvent", notify, [])]


def _event(entry: _Entry) -> Element:
    """Builds the element of an event, or that of a sequence with its events."""
    if entry.event is not None:
        return _one_event(entry.event, entry.topic)
    sequence = etree.Element(f"{{{NAMESPACE}}}sequence", nsmap={"e": NAMESPACE})
    for event in entry.events:
        sequence.append(_one_event(event, event.topic))
    return sequence


def _one_event(event: _Event, topic: str) -> Element:
    element = event_xml.build_document(event.attributes)
    element.set("topic", topic)
    element.set("id", xml.valid_text(event.id))
    element.set("time", event.time)
    return element


def _match(match: _Match) -> Element:
    header = etree.Element(f"{{{NAMESPACE}}}Match", nsmap={"e": NAMESPACE})
    header.set("subscription", match.subscription)
    if match.recipient is not None:
        header.set("recipient", xml.valid_text(match.recipient))
    return header


def _end(address: SoapAddress, end: End) -> Element:
    words, edition = address.vocabulary, address.addressing
    root = etree.Element(words.tag("SubscriptionEnd"), nsmap={"wse": words.namespace, "a": edition.namespace})
    if words is eventing.WSE_2004:
        manager = etree.SubElement(root, words.tag("SubscriptionManager"))
        identifier = f'<e:Subscription xmlns:e="{NAMESPACE}">{end.subscription}</e:Subscription>'
        Endpoint(address.manager or edition.anonymous, (identifier,)).write(manager, edition)
    etree.SubElement(root, words.tag("Status")).text = words.action(end.status)
    reason = etree.SubElement(root, words.tag("Reason"))
    reason.set(_XML_LANG, "en")
    reason.text = xml.valid_text(end.reason)
    return root


def compose(address: SoapAddress, name: str, action: str, payload: Element, matches: list[_Match]) -> bytes:
    """Composes a SOAP message."""
    headers = addressing.message_headers(
        address.addressing, action=action, message_id=f"urn:edn:message:{name}", to=address.sink.address
    )
    headers += address.sink.headers(address.addressing)
    headers += [_match(match) for match in matches]
    return envelope.write(address.version, headers, payload)
