"""Topics and routes over SOAP: create, delete, enumerate.

A topic's creation may name the matcher of its filters by URI. Elements that are not known here are left
alone, so that a message may carry what an extension of it needs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lxml import etree

from dispatcher.access import Need
from dispatcher.soap.operations import Operation, Reply, Request, Table
from dispatcher.soap.publishing import named_topic
from edn import xml
from edn.errors import InvalidInput
from edn.eventxml import NAMESPACE
from edn.soap.envelope import Fault
from edn.xml import Element

if TYPE_CHECKING:
    from dispatcher.app import Door
    from dispatcher.topics import Topic


def tag(name: str) -> str:
    return f"{{{NAMESPACE}}}{name}"


def operations(door: Door) -> Table:
    async def create_topic(request: Request) -> Reply:
        attributes = {
            str(one.get("name")): str(one.get("type"))
            for holder in request.payload.iterchildren(tag("Attributes"))
            for one in holder.iterchildren(tag("Attribute"))
        }
        engine = xml.text_of(request.payload.find(tag("Engine"))) or None
        topic, _ = await door.topics.put(
            _name(request),
            attributes,
            engine,
            _availability(request.payload),
            tenant=request.caller.tenant,
        )
        answer = _answer("CreateTopicResponse")
        answer.append(_topic(topic))
        return Reply(_action("CreateTopicResponse"), answer)

    async def delete_topic(request: Request) -> Reply:
        cascade = xml.text_of(request.payload.find(tag("Cascade"))) in ("true", "1")
        uid, ended = await door.topics.delete(_name(request), cascade=cascade, tenant=request.caller.tenant)
        door.network.placing.forget_topic(uid)
        for server, count in ended.items():
            door.network.placing.ended(server, count)
        return Reply(_action("DeleteTopicResponse"), _answer("DeleteTopicResponse"))

    async def enumerate_topics(request: Request) -> Reply:
        answer = _answer("EnumerateTopicsResponse")
        for topic in door.topics.all(request.caller.tenant):
            answer.append(_topic(topic))
        return Reply(_action("EnumerateTopicsResponse"), answer)

    async def enumerate_routes(request: Request) -> Reply:
        answer = _answer("EnumerateRoutesResponse")
        for server in door.network.describe_servers():
            route = etree.SubElement(answer, tag("Route"))
            for name in ("id", "url", "state", "subscriptions", "hit_ratio", "precision"):
                if server[name] is not None:
                    route.set(name, str(server[name]))
        return Reply(_action("EnumerateRoutesResponse"), answer)

    return {
        tag(name): Operation(run, _action(name), need, changes)
        for name, run, need, changes in (
            ("CreateTopic", create_topic, Need.ADMIN, True),
            ("DeleteTopic", delete_topic, Need.ADMIN, True),
            ("EnumerateTopics", enumerate_topics, Need.KEY, False),
            ("EnumerateRoutes", enumerate_routes, Need.OPERATOR, False),
        )
    }


def _action(name: str) -> str:
    return f"{NAMESPACE}/{name}"


def _answer(name: str) -> Element:
    return etree.Element(tag(name), nsmap={"e": NAMESPACE})


def _name(request: Request) -> str:
    name = named_topic(request)
    if name is None:
        raise Fault("Sender", "which topic? <e:Topic>stocks</e:Topic> in the message names it")
    return name


def _availability(payload: Element) -> float | None:
    text = xml.text_of(payload.find(tag("Availability")))
    if not text:
        return None
    if text == "forever":
        return math.inf
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise InvalidInput(f"Availability {text[:40]!r}: 0, a number of seconds, or forever")
    return seconds


def _topic(topic: Topic) -> Element:
    root = etree.Element(tag("TopicDescription"), nsmap={"e": NAMESPACE})
    values: dict[str, Any] = {
        "name": topic.name,
        "engine": topic.engine,
        "availability": "forever" if math.isinf(topic.availability) else f"{topic.availability:g}",
        "revision": topic.revision,
    }
    for name, value in values.items():
        root.set(name, str(value))
    for name, type_ in topic.schema.attributes.items():
        etree.SubElement(root, tag("Attribute"), name=name, type=type_)
    return root
