"""Operations on topics and routes: create, delete, enumerate.

CreateTopic may name the matcher by URI; otherwise the topic inherits the one bound to the nearest name above
it. CreateRoute binds a matcher, servers or both to the name of a topic or subtree. EnumerateRoutes returns
these bindings and the routing entries. Unknown elements are ignored, so that messages may have extensions.
"""

from __future__ import annotations

import math

from lxml import etree

from dispatcher.api.soap.operations import Operation, Reply, Request, Table, action, new_element, tag
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
from edn.formats.soap.envelope import Fault
from edn.formats.xml import Element
from edn.model import namespace
from edn.model.schema import public_type


def operations(
    topics: Topics,
    subtree_sync: SubtreeSync,
    quotas: Quotas,
    entries: RoutingEntries,
    bindings: Bindings,
    registry: ServerRegistry,
) -> Table:
    async def create_topic(request: Request) -> Reply:
        attributes = {
            str(one.get("name")): public_type(str(one.get("type")))
            for holder in request.payload.iterchildren(tag("Attributes"))
            for one in holder.iterchildren(tag("Attribute"))
        }
        topic, _ = await subtree_sync.put(
            request.require_topic(),
            attributes,
            request.text("Engine") or None,
            _availability(request.text("Availability")),
            closed=_closed(request.text("Closed")),
            tenant=request.caller.tenant,
            room=quotas.room(request.caller),
        )
        response = new_element("CreateTopicResponse")
        response.append(_topic(topic))
        return Reply.of(response)

    async def delete_topic(request: Request) -> Reply:
        cascade = request.text("Cascade") in ("true", "1")
        await subtree_sync.delete(request.require_topic(), cascade=cascade, tenant=request.caller.tenant)
        return Reply.of(new_element("DeleteTopicResponse"))

    async def enumerate_topics(request: Request) -> Reply:
        response = new_element("EnumerateTopicsResponse")
        response.extend(_topic(topic) for topic in topics.all(request.caller.tenant))
        return Reply.of(response)

    async def create_route(request: Request) -> Reply:
        servers = [xml.text_of(one) for one in request.payload.iterchildren(tag("Server"))]
        known = [server.id for server in registry]
        binding, _ = await bindings.put(
            _route_name(request), servers or None, request.text("Engine") or None, known
        )
        response = new_element("CreateRouteResponse")
        response.append(_binding(binding))
        return Reply.of(response)

    async def delete_route(request: Request) -> Reply:
        await bindings.delete(_route_name(request))
        return Reply.of(new_element("DeleteRouteResponse"))

    async def enumerate_routes(request: Request) -> Reply:
        name = request.text("Name") or None
        response = new_element("EnumerateRoutesResponse")
        for one in await entries.found(name):
            route = etree.SubElement(response, tag("Route"))
            for field in ("name", "server", "subscriptions", "rectangles", "maximal", "precision", "bytes"):
                value = getattr(one, field)
                if value is not None:
                    route.set(field, str(value))
            route.set("everything", str(one.everything).lower())
            if one.revision is not None:
                route.set("revision", ".".join(map(str, one.revision)))
        for binding in bindings.all():
            if name is None or namespace.includes(name, binding.name):
                response.append(_binding(binding))
        return Reply.of(response)

    return {
        tag(name): Operation(run, action(name), need, changes)
        for name, run, need, changes in (
            ("CreateTopic", create_topic, Need.ADMIN, True),
            ("DeleteTopic", delete_topic, Need.ADMIN, True),
            ("EnumerateTopics", enumerate_topics, Need.KEY, False),
            ("CreateRoute", create_route, Need.OPERATOR, True),
            ("DeleteRoute", delete_route, Need.OPERATOR, True),
            ("EnumerateRoutes", enumerate_routes, Need.OPERATOR, False),
        )
    }


def _route_name(request: Request) -> str:
    name = request.text("Name")
    if not name:
        message = etree.QName(request.payload).localname
        raise Fault("Sender", f"{message} must have a name, such as <e:Name>stocks.**</e:Name>")
    return name


def _binding(binding: Binding) -> Element:
    root = new_element("Binding", name=binding.name)
    if binding.engine is not None:
        root.set("engine", binding.engine)
    for server in binding.servers or ():
        etree.SubElement(root, tag("Server")).text = server
    return root


def _availability(text: str) -> float | None:
    if not text:
        return None
    if text == "forever":
        return math.inf
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise InvalidInput(
            f'Availability must be a number of seconds from 0 on, or forever, got "{text[:40]}"'
        )
    return seconds


def _closed(text: str) -> bool | None:
    if text not in ("", "true", "1", "false", "0"):
        raise InvalidInput(f'Closed must be true or false, got "{text[:40]}"')
    return text in ("true", "1") if text else None


def _topic(topic: Topic) -> Element:
    root = new_element(
        "TopicDescription",
        name=topic.name,
        engine=topic.engine,
        availability="forever" if math.isinf(topic.availability) else f"{topic.availability:g}",
        revision=str(topic.revision),
        closed="true" if topic.closed else "false",
    )
    for name, type_ in topic.schema.types.items():
        etree.SubElement(root, tag("Attribute"), name=name, type=type_)
    return root
