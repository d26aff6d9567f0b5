"""Publish: one event or many, all or nothing, as over REST."""

from __future__ import annotations

from typing import Any

import msgspec
from lxml import etree

from dispatcher.api.publish import MAX_KEY, PublishEndpoint
from dispatcher.api.soap.operations import Operation, Reply, Request, Table
from dispatcher.auth.caller import Need
from dispatcher.subscriptions.topics import Topics
from edn.errors import InvalidInput
from edn.formats import event_xml, xml
from edn.formats.event_xml import EVENT, NAMESPACE
from edn.formats.soap.envelope import Fault
from edn.formats.xml import Element

_ROOT = f"{{{NAMESPACE}}}Publish"
ACTION = f"{NAMESPACE}/Publish"
TOPIC = f"{{{NAMESPACE}}}Topic"
_KEY = f"{{{NAMESPACE}}}IdempotencyKey"
_FOREVER = "forever"


def operations(topics: Topics, endpoint: PublishEndpoint) -> Table:
    async def publish(request: Request) -> Reply:
        name = named_topic(request)
        if name is None:
            raise Fault("Sender", "Publish names no topic; <e:Topic>stocks</e:Topic> in it is right")
        topic = topics.get(name, request.caller.tenant)
        types = topic.schema.attributes
        events = [_event(one, types) for one in request.payload.iterchildren(EVENT)]
        if not events:
            raise Fault("Sender", "Publish holds no event; <e:event>…</e:event> in it is right")
        key = xml.text_of(request.payload.find(_KEY)) or None
        if key is not None and len(key) > MAX_KEY:
            raise InvalidInput(f"IdempotencyKey: 1 to {MAX_KEY} characters")
        accepted = await endpoint.publish(topic, msgspec.json.encode(events), key, who=request.caller)
        answer = etree.Element(f"{{{NAMESPACE}}}PublishResponse", nsmap={"e": NAMESPACE})
        etree.SubElement(answer, f"{{{NAMESPACE}}}Accepted").text = str(accepted.accepted)
        for id in accepted.ids:
            etree.SubElement(answer, f"{{{NAMESPACE}}}Id").text = xml.valid_text(id)
        return Reply(f"{ACTION}Response", answer)

    return {_ROOT: Operation(publish, ACTION, Need.PUBLISH)}


def named_topic(request: Request) -> str | None:
    """The topic that a message is about: in its body, in a header, or in the door's URL."""
    element = request.payload.find(TOPIC)
    if element is None:
        element = request.headers.other(TOPIC)
    return xml.text_of(element) or request.topic


def _event(element: Element, types: dict[str, str]) -> dict[str, Any]:
    event = event_xml.read(element, types)
    for name in ("id", "time"):
        value = element.get(name)
        if value is not None:
            event[f"${name}"] = value
    lasting = element.get("availability")
    if lasting is not None:
        try:
            event["$availability"] = lasting if lasting == _FOREVER else float(lasting)
        except ValueError:
            event["$availability"] = lasting  # refused with the others, by the check of events
    return event
