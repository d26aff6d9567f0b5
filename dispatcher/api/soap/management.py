"""Operations on topics, routes and advertisements: create, delete, enumerate.

CreateTopic may name the matcher by URI; otherwise the topic inherits the one bound to the nearest name above
it. CreateRoute binds a matcher, servers or both to the name of a topic or subtree. EnumerateRoutes returns
these bindings and the routing entries. Unknown elements are ignored, so that messages may have extensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from lxml import etree

from dispatcher.advertisements.service import Advertisements, NewAdvertisement
from dispatcher.api.soap.operations import Operation, Reply, Request, Table, action, new_element, tag
from dispatcher.auth.caller import Need
from dispatcher.auth.quotas import Quotas
from dispatcher.observe.routes import RoutingEntries
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store.interface import MODES, Advertising
from dispatcher.store.topic_rows import Binding
from dispatcher.subscriptions.subtree_sync import SubtreeSync
from dispatcher.subscriptions.topics import Topic, Topics
from edn.errors import InvalidInput
from edn.formats import strict_json, xml
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
    advertisements: Advertisements,
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
            advertising=_advertising(request.text("Advertising")),
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

    async def advertise(request: Request) -> Reply:
        body = NewAdvertisement(
            topic=request.require_topic(),
            advertisement=strict_json.decode(request.text("Covers").encode()),
            publisher=request.text("Publisher") or None,
            expires=request.text("Expires") or None,
            id=request.text("Id") or None,
        )
        made, _ = await advertisements.create(body, request.caller)
        response = new_element("AdvertiseResponse")
        response.append(_advertisement(advertisements.view(made, request.caller)))
        return Reply.of(response)

    async def unadvertise(request: Request) -> Reply:
        response = new_element("UnadvertiseResponse")
        id, covers = request.text("Id"), request.text("Covers")
        if bool(id) == bool(covers):
            raise Fault("Sender", "Unadvertise must have either an Id, or a Topic and Covers")
        ended = [id]
        if id:
            await advertisements.delete(id, request.caller)
        else:
            topic = await topics.find(request.require_topic(), request.caller.tenant)
            given = strict_json.decode(covers.encode())
            publisher = request.text("Publisher") or None
            keys = await advertisements.delete_covered(topic, given, publisher, request.caller)
            ended = [namespace.id_of(key) for key in keys]
        for one in ended:
            etree.SubElement(response, tag("Id")).text = one
        return Reply.of(response)

    async def enumerate_advertisements(request: Request) -> Reply:
        response = new_element("EnumerateAdvertisementsResponse")
        cursor: str | None = None
        while True:
            page, cursor = await advertisements.page(
                request.caller, limit=1000, cursor=cursor, topic=request.topic
            )
            response.extend(_advertisement(advertisements.view(one, request.caller)) for one in page)
            if cursor is None:
                return Reply.of(response)

    return {
        tag(name): Operation(run, action(name), need)
        for name, run, need in (
            ("CreateTopic", create_topic, Need.ADMIN),
            ("DeleteTopic", delete_topic, Need.ADMIN),
            ("EnumerateTopics", enumerate_topics, Need.KEY),
            ("Advertise", advertise, Need.PUBLISH),
            ("Unadvertise", unadvertise, Need.PUBLISH),
            ("EnumerateAdvertisements", enumerate_advertisements, Need.KEY),
            ("CreateRoute", create_route, Need.OPERATOR),
            ("DeleteRoute", delete_route, Need.OPERATOR),
            ("EnumerateRoutes", enumerate_routes, Need.OPERATOR),
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


def _advertising(text: str) -> Advertising | None:
    for mode in MODES:
        if text == mode:
            return mode
    if text:
        raise InvalidInput(f'Advertising must be off, deliver or guard, got "{text[:40]}"')
    return None


def _advertisement(view: Mapping[str, Any]) -> Element:
    root = new_element(
        "Advertisement",
        id=view["id"],
        topic=view["topic"],
        publisher=view["publisher"],
        created=view["created"],
        **({} if view["expires"] is None else {"expires": view["expires"]}),
    )
    etree.SubElement(root, tag("Covers")).text = msgspec.json.encode(view["advertisement"]).decode()
    return root


def _topic(topic: Topic) -> Element:
    root = new_element(
        "TopicDescription",
        name=topic.name,
        engine=topic.engine,
        availability="forever" if math.isinf(topic.availability) else f"{topic.availability:g}",
        revision=str(topic.revision),
        closed="true" if topic.closed else "false",
        advertising=topic.advertising,
    )
    for name, type_ in topic.schema.types.items():
        etree.SubElement(root, tag("Attribute"), name=name, type=type_)
    return root
