"""Topics and routes over SOAP: create, delete, enumerate.

A topic's creation may name the matcher of its filters by URI; one that does not has it from the nearest name
above that it is bound to. A route's creation binds a matcher, servers or both to the name of a topic or a
subtree; what is enumerated are these, and the routing entries that there are. Elements that are not known
here are left alone, so that a message may carry what an extension of it needs.
"""

from __future__ import annotations

import math
from typing import Any

from lxml import etree

from dispatcher.api.soap.operations import Operation, Reply, Request, Table
from dispatcher.api.soap.publishing import named_topic
from dispatcher.auth.caller import Need
from dispatcher.auth.quotas import Quotas
from dispatcher.observe.routes import RoutingEntries
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store.topic_rows import Binding
from dispatcher.subscriptions.subtree_sync import SubtreeSync
from dispatcher.subscriptions.topics import Topic, Topics
from edn.errors import InvalidInput
from edn.formats import xml
from edn.formats.event_xml import NAMESPACE
from edn.formats.soap.envelope import Fault
from edn.formats.xml import Element
from edn.model import namespace


def tag(name: str) -> str:
    return f"{{{NAMESPACE}}}{name}"


def operations(
    topics: Topics,
    subtree_sync: SubtreeSync,
    quotas: Quotas,
    entries: RoutingEntries,
    bindings: Bindings,
    members: ServerRegistry,
) -> Table:
    async def create_topic(request: Request) -> Reply:
        attributes = {
            str(one.get("name")): str(one.get("type"))
            for holder in request.payload.iterchildren(tag("Attributes"))
            for one in holder.iterchildren(tag("Attribute"))
        }
        engine = xml.text_of(request.payload.find(tag("Engine"))) or None
        topic, _ = await subtree_sync.put(
            _name(request),
            attributes,
            engine,
            _availability(request.payload),
            tenant=request.caller.tenant,
            room=quotas.room(request.caller),
        )
        answer = _answer("CreateTopicResponse")
        answer.append(_topic(topic))
        return Reply(_action("CreateTopicResponse"), answer)

    async def delete_topic(request: Request) -> Reply:
        cascade = xml.text_of(request.payload.find(tag("Cascade"))) in ("true", "1")
        await subtree_sync.delete(_name(request), cascade=cascade, tenant=request.caller.tenant)
        return Reply(_action("DeleteTopicResponse"), _answer("DeleteTopicResponse"))

    async def enumerate_topics(request: Request) -> Reply:
        answer = _answer("EnumerateTopicsResponse")
        for topic in topics.all(request.caller.tenant):
            answer.append(_topic(topic))
        return Reply(_action("EnumerateTopicsResponse"), answer)

    async def create_route(request: Request) -> Reply:
        servers = [xml.text_of(one) for one in request.payload.iterchildren(tag("Server"))]
        engine = xml.text_of(request.payload.find(tag("Engine"))) or None
        known = [member.id for member in members]
        binding, _ = await bindings.put(_route_name(request), servers or None, engine, known)
        answer = _answer("CreateRouteResponse")
        answer.append(_binding(binding))
        return Reply(_action("CreateRouteResponse"), answer)

    async def delete_route(request: Request) -> Reply:
        await bindings.delete(_route_name(request))
        return Reply(_action("DeleteRouteResponse"), _answer("DeleteRouteResponse"))

    async def enumerate_routes(request: Request) -> Reply:
        name = xml.text_of(request.payload.find(tag("Name"))) or None
        answer = _answer("EnumerateRoutesResponse")
        for one in await entries.found(name):
            route = etree.SubElement(answer, tag("Route"))
            for field in ("name", "server", "subscriptions", "rectangles", "maximal", "precision", "bytes"):
                value = getattr(one, field)
                if value is not None:
                    route.set(field, str(value))
            route.set("everything", str(one.everything).lower())
            if one.revision is not None:
                route.set("revision", ".".join(map(str, one.revision)))
        for binding in bindings.all():
            if name is None or namespace.includes(name, binding.name):
                answer.append(_binding(binding))
        return Reply(_action("EnumerateRoutesResponse"), answer)

    return {
        tag(name): Operation(run, _action(name), need, changes)
        for name, run, need, changes in (
            ("CreateTopic", create_topic, Need.ADMIN, True),
            ("DeleteTopic", delete_topic, Need.ADMIN, True),
            ("EnumerateTopics", enumerate_topics, Need.KEY, False),
            ("CreateRoute", create_route, Need.OPERATOR, True),
            ("DeleteRoute", delete_route, Need.OPERATOR, True),
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


def _route_name(request: Request) -> str:
    name = xml.text_of(request.payload.find(tag("Name")))
    if not name:
        raise Fault("Sender", "which name? <e:Name>stocks.**</e:Name> in the message says it")
    return name


def _binding(binding: Binding) -> Element:
    root = etree.Element(tag("Binding"), nsmap={"e": NAMESPACE}, name=binding.name)
    if binding.engine is not None:
        root.set("engine", binding.engine)
    for server in binding.servers or ():
        etree.SubElement(root, tag("Server")).text = server
    return root


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
