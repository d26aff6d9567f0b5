"""SOAP messages from anywhere, to the whole door: an answer or a fault, and never a failure of ours.

Behind the door is a stand-in that checks what it is given as the dispatcher would, and keeps nothing.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from lxml import etree

from dispatcher.api.soap import eventing, management, publishing
from dispatcher.api.soap.endpoint import SoapEndpoint
from dispatcher.auth import access
from dispatcher.auth.caller import EVERYBODY, Caller
from dispatcher.servers.bindings import check_name
from dispatcher.store.topic_rows import Binding
from dispatcher.subscriptions.expiry import parse_expires
from edn.api.events import Published
from edn.errors import InvalidSink, NotFound
from edn.formats.soap.address import SoapAddress
from edn.http.sink_policy import check_url
from edn.model.filter import Filter
from edn.model.schema import Schema

SCHEMA = Schema.parse({"symbol": "string", "price": "number", "open": "boolean", "at.floor": "integer"})
TOPIC = SimpleNamespace(
    name="stocks", schema=SCHEMA, engine="xpath", availability=0.0, revision=1, tenant="", path="stocks"
)
#: said of what nobody expected
FAILURE = b"the service failed at this request"


class _Door:
    """What the operations of the door call."""

    guard = SimpleNamespace(
        require=lambda who, need, scope: who.require(need), quotas=SimpleNamespace(room=lambda who: None)
    )
    log = SimpleNamespace(now=lambda: 1_900_000_000_000_000)

    async def found(self, name: str | None) -> list[Any]:
        return []

    def get(self, name: str, tenant: str = "") -> Any:
        if name != "stocks":
            raise NotFound(f"no {name[:80]}")
        return TOPIC

    def find(self, who: Caller, name: str) -> Any:
        raise NotFound(f"no {name[:80]}")

    def all(self, tenant: str = "") -> list[Any]:
        return [TOPIC]

    async def put(self, name: str, attributes: Any, engine: Any, availability: Any, **more: Any) -> Any:
        Schema.parse(attributes)
        raise NotFound("nothing is made")

    async def delete(self, name: str, **more: Any) -> None:
        raise NotFound(f"no {name[:80]}")

    async def subscribe(self, body: Any, who: Caller) -> tuple[Any, int, dict[str, str]]:
        self.get(body.topic)
        Filter.parse(body.filter).bind(SCHEMA)
        check_url(body.sink.url, allow_loopback=True, allow_http=True)
        address = SoapAddress.parse(body.sink.url)
        assert SoapAddress.parse(address.url()) == address, "an address is read as another"
        if body.expires is not None:
            parse_expires(body.expires, self.log.now())
        return {"id": "made", "expires": None}, 201, {}


class _Bindings:
    async def put(self, name: str, servers: Any, engine: str | None, known: Any) -> Any:
        check_name(name)
        raise NotFound("nothing is bound")

    async def delete(self, name: str) -> None:
        raise NotFound(f"no {name[:80]}")

    def all(self) -> list[Binding]:
        return [Binding("stocks.**", ("s1",), "rtree", 1)]


class _Publishing:
    async def publish(self, topic: Any, body: bytes, *more: Any, **named: Any) -> Published:
        return Published(len(topic.schema.decode_events(body)), [])


def _seed(body: str, headers: str = "", soap: str = "http://www.w3.org/2003/05/soap-envelope") -> bytes:
    return (
        f'<s:Envelope xmlns:s="{soap}" xmlns:w="http://www.w3.org/2011/03/ws-evt" xmlns:e="urn:edn:soap" '
        f'xmlns:a="http://www.w3.org/2005/08/addressing"><s:Header>{headers}</s:Header>'
        f"<s:Body>{body}</s:Body></s:Envelope>"
    ).encode()


_SUBSCRIBE = (
    "<w:Subscribe><w:EndTo><a:Address>http://127.0.0.1/e</a:Address></w:EndTo><w:Delivery><w:NotifyTo>"
    "<a:Address>http://127.0.0.1/s</a:Address><a:ReferenceParameters><x y='1'>2</x></a:ReferenceParameters>"
    "</w:NotifyTo></w:Delivery><w:Expires>PT1H</w:Expires><w:Filter>price &gt; 30</w:Filter>"
    "<e:Topic>stocks</e:Topic></w:Subscribe>"
)
SEEDS = [
    _seed(_SUBSCRIBE, "<a:Action>http://www.w3.org/2011/03/ws-evt/Subscribe</a:Action>"),
    _seed(_SUBSCRIBE.replace("w:Filter", 'w:Filter Dialect="urn:edn:filter"', 1), soap="urn:x"),
    _seed(
        "<e:Publish><e:Topic>stocks</e:Topic><e:event id='1'><price>3</price><at><floor>4</floor></at>"
        "</e:event><e:event><e:attribute name='open'>true</e:attribute></e:event></e:Publish>",
        soap="http://schemas.xmlsoap.org/soap/envelope/",
    ),
    _seed("<w:Renew><w:Expires>P1Y2M3DT4H</w:Expires></w:Renew>", "<e:Subscription>made</e:Subscription>"),
    _seed("<e:CreateTopic><e:Topic>t</e:Topic><e:Attributes/></e:CreateTopic>"),
    _seed(
        "<e:CreateRoute><e:Name>t.**</e:Name><e:Server>s1</e:Server><e:Engine>rtree</e:Engine></e:CreateRoute>"
    ),
    _seed("<e:EnumerateRoutes><e:Name>stocks.**</e:Name></e:EnumerateRoutes>"),
    b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
    b"\xff\xfe<\x00a\x00/\x00>\x00",
]

_door: Any = _Door()
_bindings: Any = _Bindings()
_publishing: Any = _Publishing()
_endpoint = SoapEndpoint(
    _door.guard,
    {
        **eventing.operations(_door.log, _door, _door),
        **publishing.operations(_door, _publishing),
        **management.operations(_door, _door, _door.guard.quotas, _door, _bindings, (), _door),  # type: ignore[arg-type]
    },
)
_loop = asyncio.new_event_loop()


def one(data: bytes) -> None:
    """One input."""
    status, parts = 0, []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/soap",
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/soap+xml")],
        access._CALLER: EVERYBODY,
    }
    _loop.run_until_complete(_endpoint(scope, receive, send))
    answer = b"".join(parts)
    assert status in (200, 202, 400, 500), status
    assert FAILURE not in answer, "a failure of ours"
    if answer:
        etree.fromstring(answer)
    try:
        found = SoapAddress.parse("soap:?" + data.decode("utf-8", "replace"))
    except InvalidSink:
        return
    assert SoapAddress.parse(found.url()) == found
