"""The operation Publish: one event or many, all or nothing, as over REST."""

from __future__ import annotations

from typing import Any

import msgspec
from lxml import etree

from dispatcher.api.publish import MAX_KEY, PublishEndpoint
from dispatcher.api.soap.operations import Operation, Reply, Request, Table, action, new_element, tag
from dispatcher.auth.caller import Need
from dispatcher.subscriptions.topics import Topics
from edn.errors import InvalidInput
from edn.formats import event_xml, xml
from edn.formats.event_xml import EVENT
from edn.formats.soap.envelope import Fault
from edn.formats.xml import Element


def operations(topics: Topics, endpoint: PublishEndpoint) -> Table:
    async def publish(request: Request) -> Reply:
        topic = await topics.find(request.require_topic(), request.caller.tenant)
        types = topic.schema.types
        events = [_event(one, types) for one in request.payload.iterchildren(EVENT)]
        if not events:
            raise Fault("Sender", "Publish must contain an event, such as <e:event>…</e:event>")
        key = request.text("IdempotencyKey") or None
        if key is not None and len(key) > MAX_KEY:
            raise InvalidInput(f"IdempotencyKey must be 1 to {MAX_KEY} characters, got {len(key)}")
        published = await endpoint.publish(topic, msgspec.json.encode(events), key, who=request.caller)
        response = new_element("PublishResponse")
        etree.SubElement(response, tag("Accepted")).text = str(published.accepted)
        for id in published.ids:
            etree.SubElement(response, tag("Id")).text = xml.valid_text(id)
        for place in published.unadvertised:
            etree.SubElement(response, tag("Unadvertised")).text = str(place)
        return Reply.of(response)

    return {tag("Publish"): Operation(publish, action("Publish"), Need.PUBLISH)}


def _event(element: Element, types: dict[str, str]) -> dict[str, Any]:
    event = event_xml.read(element, types)
    for name in ("id", "time"):
        value = element.get(name)
        if value is not None:
            event[f"${name}"] = value
    availability = element.get("availability")
    if availability is not None:
        try:
            event["$availability"] = availability if availability == "forever" else float(availability)
        except ValueError:
            event["$availability"] = availability  # the check of events refuses it
    return event
