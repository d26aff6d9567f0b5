"""The WSDL at `GET /soap?wsdl`: schemas, port types, bindings to both versions of SOAP, one service.

It is written for toolkits that generate clients, so it is narrower than the endpoint: a filter is text with a
dialect, the subscription of a Renew is a typed header, attributes of an event are a list of names and texts.
The endpoint also accepts filters in elements, reference parameters, and attributes as elements of their own
names (`##local` below).

There is one port type per vocabulary of WS-Eventing, one for publishing and one for management; `EventSink`
has no port here: subscribers implement it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from xml.sax.saxutils import quoteattr

from edn.formats.event_xml import NAMESPACE
from edn.formats.soap.addressing import WSA_2005
from edn.formats.soap.eventing import BY_NAMESPACE, TOPIC_ACTION, WSE_2004, Vocabulary

_PREFIXES = {
    "wsdl": "http://schemas.xmlsoap.org/wsdl/",
    "soap11": "http://schemas.xmlsoap.org/wsdl/soap/",
    "soap12": "http://schemas.xmlsoap.org/wsdl/soap12/",
    "wsam": "http://www.w3.org/2007/05/addressing/metadata",
    "xs": "http://www.w3.org/2001/XMLSchema",
    "wsa": WSA_2005.namespace,
    "e": NAMESPACE,
    **{f"wse{words.name}": words.namespace for words in BY_NAMESPACE.values()},
}
_HTTP = "http://schemas.xmlsoap.org/soap/http"


@dataclass(frozen=True, slots=True)
class _Operation:
    name: str
    #: element of the request
    request: str
    #: element of the response; None: an empty body, "": no response
    response: str | None
    action: str
    #: a header names the subscription
    has_subscription: bool = False


def _eventing(words: Vocabulary) -> tuple[_Operation, ...]:
    def operation(name: str) -> _Operation:
        element = f"wse{words.name}:{name}"
        is_empty = name == "Unsubscribe" and not words.unsubscribe_answers
        response = None if is_empty else f"{element}Response"
        return _Operation(name, element, response, words.action(name), name != "Subscribe")

    return tuple(map(operation, ("Subscribe", "Renew", "GetStatus", "Unsubscribe")))


def _own(*names: str) -> tuple[_Operation, ...]:
    return tuple(_Operation(name, f"e:{name}", f"e:{name}Response", f"{NAMESPACE}/{name}") for name in names)


#: port type → operations
_PORT_TYPES: dict[str, tuple[_Operation, ...]] = {
    **{f"EventSource{words.name}": _eventing(words) for words in BY_NAMESPACE.values()},
    "Publishing": _own("Publish"),
    "Management": _own(
        "CreateTopic",
        "DeleteTopic",
        "EnumerateTopics",
        "Advertise",
        "Unadvertise",
        "EnumerateAdvertisements",
        "CreateRoute",
        "DeleteRoute",
        "EnumerateRoutes",
    ),
}
_SINK: dict[str, tuple[_Operation, ...]] = {
    "EventSink": (
        _Operation("Event", "e:event", "", TOPIC_ACTION),
        *(
            _Operation(
                f"SubscriptionEnd{words.name}",
                f"wse{words.name}:SubscriptionEnd",
                "",
                words.action("SubscriptionEnd"),
            )
            for words in BY_NAMESPACE.values()
        ),
    )
}


def document(url: str) -> bytes:
    return _document().replace("{location}", quoteattr(url)).encode()


@cache
def _document() -> str:
    declared = " ".join(f'xmlns:{prefix}="{uri}"' for prefix, uri in _PREFIXES.items())
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<wsdl:definitions name="edn" targetNamespace="{NAMESPACE}" {declared}>',
        "<wsdl:types>",
        _ADDRESSING_SCHEMA,
        *(_eventing_schema(words) for words in BY_NAMESPACE.values()),
        _OWN_SCHEMA,
        "</wsdl:types>",
        '<wsdl:message name="SubscriptionHeader">'
        '<wsdl:part name="Subscription" element="e:Subscription"/></wsdl:message>',
        *_messages(),
        *_port_types(),
        *_bindings(),
        *_service(),
        "</wsdl:definitions>",
    ]
    return "\n".join(parts)


def _messages() -> Iterator[str]:
    for port_type, operations in (_PORT_TYPES | _SINK).items():
        for one in operations:
            yield _message(f"{port_type}{one.name}", one.request)
            if one.response != "":
                yield _message(f"{port_type}{one.name}Response", one.response)


def _message(name: str, element: str | None) -> str:
    part = "" if element is None else f'<wsdl:part name="parameters" element="{element}"/>'
    return f'<wsdl:message name="{name}">{part}</wsdl:message>'


def _port_types() -> Iterator[str]:
    for port_type, operations in (_PORT_TYPES | _SINK).items():
        yield f'<wsdl:portType name="{port_type}">'
        for one in operations:
            message = f"e:{port_type}{one.name}"
            yield f'<wsdl:operation name="{one.name}">'
            yield f'<wsdl:input message="{message}" wsam:Action="{one.action}"/>'
            if one.response != "":
                yield f'<wsdl:output message="{message}Response" wsam:Action="{one.action}Response"/>'
            yield "</wsdl:operation>"
        yield "</wsdl:portType>"


def _bindings() -> Iterator[str]:
    for soap in ("soap11", "soap12"):
        for port_type, operations in (_PORT_TYPES | _SINK).items():
            yield f'<wsdl:binding name="{port_type}{soap.capitalize()}" type="e:{port_type}">'
            yield f'<{soap}:binding style="document" transport="{_HTTP}"/>'
            for one in operations:
                yield from _bound(one, soap)
            yield "</wsdl:binding>"


def _bound(one: _Operation, soap: str) -> Iterable[str]:
    header = (
        f'<{soap}:header message="e:SubscriptionHeader" part="Subscription" use="literal"/>'
        if one.has_subscription
        else ""
    )
    yield f'<wsdl:operation name="{one.name}"><{soap}:operation soapAction="{one.action}"/>'
    yield f'<wsdl:input>{header}<{soap}:body use="literal"/></wsdl:input>'
    if one.response != "":
        yield f'<wsdl:output><{soap}:body use="literal"/></wsdl:output>'
    yield "</wsdl:operation>"


def _service() -> Iterator[str]:
    yield '<wsdl:service name="EventDistribution">'
    for port_type in _PORT_TYPES:
        for soap in ("soap11", "soap12"):
            name = f"{port_type}{soap.capitalize()}"
            yield f'<wsdl:port name="{name}" binding="e:{name}">'
            yield f"<{soap}:address location={{location}}/></wsdl:port>"
    yield "</wsdl:service>"


# -- schemas ----------------------------------------------------------------------------------------------

_OCCURS = {
    "": "",
    "?": ' minOccurs="0"',
    "*": ' minOccurs="0" maxOccurs="unbounded"',
    "+": ' maxOccurs="unbounded"',
}
#: extensions of a message
_ANY = '<xs:any namespace="##other" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>'


def _child(name: str, type_: str = "xs:string", occurs: str = "") -> str:
    return f'<xs:element name="{name}" type="{type_}"{_OCCURS[occurs]}/>'


def _ref(name: str, occurs: str = "") -> str:
    return f'<xs:element ref="e:{name}"{_OCCURS[occurs]}/>'


def _attributes(required: bool = False, **types: str) -> str:
    use = ' use="required"' if required else ""
    return "".join(f'<xs:attribute name="{name}" type="xs:{type_}"{use}/>' for name, type_ in types.items())


def _element(name: str, *children: str, attributes: str = "") -> str:
    content = f"<xs:sequence>{''.join(children)}</xs:sequence>{attributes}"
    return f'<xs:element name="{name}"><xs:complexType>{content}</xs:complexType></xs:element>'


def _empty_child(name: str, occurs: str, attributes: str) -> str:
    content = f"<xs:complexType>{attributes}</xs:complexType>"
    return f'<xs:element name="{name}"{_OCCURS[occurs]}>{content}</xs:element>'


def _type(name: str, *children: str, attributes: str = "") -> str:
    content = f"<xs:sequence>{''.join(children)}</xs:sequence>{attributes}"
    return f'<xs:complexType name="{name}">{content}</xs:complexType>'


def _text_type(name: str, base: str, attributes: str) -> str:
    return (
        f'<xs:complexType name="{name}"><xs:simpleContent><xs:extension base="xs:{base}">{attributes}'
        "</xs:extension></xs:simpleContent></xs:complexType>"
    )


def _schema(namespace: str, *parts: str) -> str:
    content = "\n".join(parts)
    return f'<xs:schema targetNamespace="{namespace}" elementFormDefault="qualified">{content}</xs:schema>'


_ADDRESSING_SCHEMA = _schema(
    WSA_2005.namespace,
    _text_type("AttributedURIType", "anyURI", '<xs:anyAttribute namespace="##other" processContents="lax"/>'),
    _type("ReferenceParametersType", _ANY.replace("##other", "##any")),
    _type(
        "EndpointReferenceType",
        _child("Address", "wsa:AttributedURIType"),
        _child("ReferenceParameters", "wsa:ReferenceParametersType", "?"),
    ),
)


def _eventing_schema(words: Vocabulary) -> str:
    prefix = f"wse{words.name}"
    old = words is WSE_2004
    granted = _child(words.granted, occurs="?")
    expires = _child("Expires", occurs="?")
    manager = _child("SubscriptionManager", "wsa:EndpointReferenceType")
    layout = _empty_child("Format", "?", _attributes(Name="anyURI"))
    return _schema(
        words.namespace,
        f'<xs:import namespace="{WSA_2005.namespace}"/><xs:import namespace="{NAMESPACE}"/>',
        _text_type("FilterType", "string", _attributes(Dialect="anyURI")),
        _type(
            "DeliveryType",
            _child("NotifyTo", "wsa:EndpointReferenceType"),
            attributes=_attributes(Mode="anyURI") if old else "",
        ),
        _element(
            "Subscribe",
            _child("EndTo", "wsa:EndpointReferenceType", "?"),
            _child("Delivery", f"{prefix}:DeliveryType"),
            "" if old else layout,
            expires,
            _child("Filter", f"{prefix}:FilterType", "?"),
            *(_ref(name, "?") for name in ("Topic", "Recipient", "Id")),
        ),
        _element("SubscribeResponse", manager, granted),
        _element("Renew", expires),
        _element("RenewResponse", granted),
        _element("GetStatus"),
        _element("GetStatusResponse", granted),
        _element("Unsubscribe"),
        "" if old else _element("UnsubscribeResponse"),
        _element(
            "SubscriptionEnd",
            manager if old else "",
            _child("Status", "xs:anyURI"),
            _child("Reason", occurs="*"),
        ),
    )


_ATTRIBUTE = _empty_child("Attribute", "*", _attributes(required=True, name="string", type="string"))
_OWN_SCHEMA = _schema(
    NAMESPACE,
    *(_child(name) for name in ("Topic", "Recipient", "Id", "Subscription")),
    _text_type("AttributeType", "string", _attributes(required=True, name="string")),
    _type(
        "EventType",
        _child("attribute", "e:AttributeType", "*"),
        _ANY.replace("##other", "##local"),
        attributes=_attributes(id="string", time="string", topic="string", availability="string"),
    ),
    _child("event", "e:EventType"),
    _element("Publish", _ref("Topic"), _child("IdempotencyKey", occurs="?"), _ref("event", "+")),
    _element(
        "PublishResponse",
        _child("Accepted", "xs:int"),
        _ref("Id", "*"),
        _child("Unadvertised", "xs:int", "*"),
    ),
    _element(
        "TopicDescription",
        _ATTRIBUTE,
        attributes=_attributes(
            name="string",
            engine="string",
            availability="string",
            revision="int",
            closed="boolean",
            advertising="string",
        ),
    ),
    _element(
        "CreateTopic",
        _ref("Topic"),
        _element("Attributes", _ATTRIBUTE),
        _child("Engine", "xs:anyURI", "?"),
        _child("Availability", occurs="?"),
        _child("Closed", "xs:boolean", "?"),
        _child("Advertising", occurs="?"),
    ),
    _element("CreateTopicResponse", _ref("TopicDescription")),
    _element("DeleteTopic", _ref("Topic"), _child("Cascade", "xs:boolean", "?")),
    _element("DeleteTopicResponse"),
    _element("EnumerateTopics"),
    _element("EnumerateTopicsResponse", _ref("TopicDescription", "*")),
    _child("Covers"),
    _child("Publisher"),
    _element(
        "Advertisement",
        _ref("Covers"),
        attributes=_attributes(
            id="string", topic="string", publisher="string", created="string", expires="string"
        ),
    ),
    _element(
        "Advertise",
        _ref("Topic"),
        _ref("Covers"),
        _ref("Publisher", "?"),
        _child("Expires", occurs="?"),
        _ref("Id", "?"),
    ),
    _element("AdvertiseResponse", _ref("Advertisement")),
    _element("Unadvertise", _ref("Topic", "?"), _ref("Covers", "?"), _ref("Publisher", "?"), _ref("Id", "?")),
    _element("UnadvertiseResponse", _ref("Id", "*")),
    _element("EnumerateAdvertisements", _ref("Topic", "?"), _ANY),
    _element("EnumerateAdvertisementsResponse", _ref("Advertisement", "*")),
    _child("Name"),
    _element("Binding", _child("Server", occurs="*"), attributes=_attributes(name="string", engine="string")),
    _element(
        "CreateRoute", _ref("Name"), _child("Server", occurs="*"), _child("Engine", "xs:anyURI", "?"), _ANY
    ),
    _element("CreateRouteResponse", _ref("Binding")),
    _element("DeleteRoute", _ref("Name"), _ANY),
    _element("DeleteRouteResponse"),
    _element("EnumerateRoutes", _ref("Name", "?"), _ANY),
    _element(
        "EnumerateRoutesResponse",
        _empty_child(
            "Route",
            "*",
            _attributes(
                name="string",
                server="string",
                subscriptions="int",
                rectangles="int",
                maximal="int",
                precision="double",
                bytes="long",
                everything="boolean",
                revision="string",
            ),
        ),
        _ref("Binding", "*"),
    ),
)
