"""The description at `GET /soap?wsdl`: schemas, port types, bindings to both versions of SOAP, one service.

It is written for the toolkits that generate clients from it. So it says less than the door takes: a filter is
text with a dialect, the subscription of a Renew is a typed header, an event's attributes are a list of names
and texts. The door also takes filters in elements, reference parameters as such, and attributes as elements
of their own names (`##local` below).

A port type a vocabulary of WS-Eventing, one for publishing, one for managing; and `EventSink`, which has no
port here: it is what a subscriber offers.
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
    #: element of the request, and of the answer; no answer: "", an answer with an empty body: None
    takes: str
    gives: str | None
    action: str
    #: actions of answers are those of requests with this
    answer: str = "Response"
    #: it says in a header which subscription it is about
    about_subscription: bool = False


def _eventing(words: Vocabulary) -> tuple[_Operation, ...]:
    prefix = f"wse{words.name}:"
    over = f"{prefix}UnsubscribeResponse" if words.unsubscribe_answers else None
    return (
        _Operation(
            "Subscribe", f"{prefix}Subscribe", f"{prefix}SubscribeResponse", words.action("Subscribe")
        ),
        _Operation(
            "Renew",
            f"{prefix}Renew",
            f"{prefix}RenewResponse",
            words.action("Renew"),
            about_subscription=True,
        ),
        _Operation(
            "GetStatus",
            f"{prefix}GetStatus",
            f"{prefix}GetStatusResponse",
            words.action("GetStatus"),
            about_subscription=True,
        ),
        _Operation(
            "Unsubscribe", f"{prefix}Unsubscribe", over, words.action("Unsubscribe"), about_subscription=True
        ),
    )


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
    """The description of a door that is reached at this URL."""
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
            yield _message(f"{port_type}{one.name}", one.takes)
            if one.gives != "":
                yield _message(f"{port_type}{one.name}Response", one.gives)


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
            if one.gives != "":
                yield (f'<wsdl:output message="{message}Response" wsam:Action="{one.action}{one.answer}"/>')
            yield "</wsdl:operation>"
        yield "</wsdl:portType>"


def _bindings() -> Iterator[str]:
    for soap in ("soap11", "soap12"):
        for port_type, operations in (_PORT_TYPES | _SINK).items():
            yield f'<wsdl:binding name="{_binding(port_type, soap)}" type="e:{port_type}">'
            yield f'<{soap}:binding style="document" transport="{_HTTP}"/>'
            for one in operations:
                yield from _bound(one, soap)
            yield "</wsdl:binding>"


def _bound(one: _Operation, soap: str) -> Iterable[str]:
    header = (
        f'<{soap}:header message="e:SubscriptionHeader" part="Subscription" use="literal"/>'
        if one.about_subscription
        else ""
    )
    yield f'<wsdl:operation name="{one.name}"><{soap}:operation soapAction="{one.action}"/>'
    yield f'<wsdl:input>{header}<{soap}:body use="literal"/></wsdl:input>'
    if one.gives != "":
        yield f'<wsdl:output><{soap}:body use="literal"/></wsdl:output>'
    yield "</wsdl:operation>"


def _service() -> Iterator[str]:
    yield '<wsdl:service name="EventDistribution">'
    for port_type in _PORT_TYPES:
        for soap in ("soap11", "soap12"):
            name = _binding(port_type, soap)
            yield f'<wsdl:port name="{name}" binding="e:{name}">'
            yield f"<{soap}:address location={{location}}/></wsdl:port>"
    yield "</wsdl:service>"


def _binding(port_type: str, soap: str) -> str:
    return f"{port_type}{'Soap11' if soap == 'soap11' else 'Soap12'}"


_ADDRESSING_SCHEMA = f"""\
<xs:schema targetNamespace="{WSA_2005.namespace}" elementFormDefault="qualified">
<xs:complexType name="AttributedURIType"><xs:simpleContent><xs:extension base="xs:anyURI">
<xs:anyAttribute namespace="##other" processContents="lax"/>
</xs:extension></xs:simpleContent></xs:complexType>
<xs:complexType name="ReferenceParametersType"><xs:sequence>
<xs:any namespace="##any" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>
</xs:sequence></xs:complexType>
<xs:complexType name="EndpointReferenceType"><xs:sequence>
<xs:element name="Address" type="wsa:AttributedURIType"/>
<xs:element name="ReferenceParameters" type="wsa:ReferenceParametersType" minOccurs="0"/>
</xs:sequence></xs:complexType>
</xs:schema>"""


def _eventing_schema(words: Vocabulary) -> str:
    prefix = f"wse{words.name}"
    old = words is WSE_2004
    granted = f'<xs:element name="{words.granted}" type="xs:string" minOccurs="0"/>'
    mode = '<xs:attribute name="Mode" type="xs:anyURI"/>' if old else ""
    layout = (
        ""
        if old
        else '<xs:element name="Format" minOccurs="0"><xs:complexType>'
        '<xs:attribute name="Name" type="xs:anyURI"/></xs:complexType></xs:element>'
    )
    filter_ = f'<xs:element name="Filter" type="{prefix}:FilterType" minOccurs="0"/>'
    expires = '<xs:element name="Expires" type="xs:string" minOccurs="0"/>'
    # The two name the same in another order.
    inner = f"{expires}{filter_}" if old else f"{layout}{expires}{filter_}"
    over = "" if old else _element("UnsubscribeResponse", "")
    manager = '<xs:element name="SubscriptionManager" type="wsa:EndpointReferenceType"/>'
    return f"""\
<xs:schema targetNamespace="{words.namespace}" elementFormDefault="qualified">
<xs:import namespace="{WSA_2005.namespace}"/><xs:import namespace="{NAMESPACE}"/>
<xs:complexType name="FilterType"><xs:simpleContent><xs:extension base="xs:string">
<xs:attribute name="Dialect" type="xs:anyURI"/></xs:extension></xs:simpleContent></xs:complexType>
<xs:complexType name="DeliveryType"><xs:sequence>
<xs:element name="NotifyTo" type="wsa:EndpointReferenceType"/></xs:sequence>{mode}</xs:complexType>
{
        _element(
            "Subscribe",
            '<xs:element name="EndTo" type="wsa:EndpointReferenceType" minOccurs="0"/>'
            f'<xs:element name="Delivery" type="{prefix}:DeliveryType"/>{inner}'
            '<xs:element ref="e:Topic" minOccurs="0"/><xs:element ref="e:Recipient" minOccurs="0"/>'
            '<xs:element ref="e:Id" minOccurs="0"/>',
        )
    }
{_element("SubscribeResponse", manager + granted)}
{_element("Renew", expires)}{_element("RenewResponse", granted)}
{_element("GetStatus", "")}{_element("GetStatusResponse", granted)}
{_element("Unsubscribe", "")}{over}
{
        _element(
            "SubscriptionEnd",
            (manager if old else "")
            + '<xs:element name="Status" type="xs:anyURI"/><xs:element name="Reason" type="xs:string" '
            'minOccurs="0" maxOccurs="unbounded"/>',
        )
    }
</xs:schema>"""


def _element(name: str, content: str) -> str:
    return (
        f'<xs:element name="{name}"><xs:complexType><xs:sequence>{content}</xs:sequence></xs:complexType>'
        "</xs:element>"
    )


_ATTRIBUTE = (
    '<xs:element name="Attribute" minOccurs="0" maxOccurs="unbounded"><xs:complexType>'
    '<xs:attribute name="name" type="xs:string" use="required"/>'
    '<xs:attribute name="type" type="xs:string" use="required"/></xs:complexType></xs:element>'
)
#: what an extension of a message may add
_MORE = '<xs:any namespace="##other" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>'
_OWN_SCHEMA = f"""\
<xs:schema targetNamespace="{NAMESPACE}" elementFormDefault="qualified">
<xs:element name="Topic" type="xs:string"/>
<xs:element name="Recipient" type="xs:string"/>
<xs:element name="Id" type="xs:string"/>
<xs:element name="Subscription" type="xs:string"/>
<xs:complexType name="AttributeType"><xs:simpleContent><xs:extension base="xs:string">
<xs:attribute name="name" type="xs:string" use="required"/></xs:extension></xs:simpleContent></xs:complexType>
<xs:complexType name="EventType"><xs:sequence>
<xs:element name="attribute" type="e:AttributeType" minOccurs="0" maxOccurs="unbounded"/>
<xs:any namespace="##local" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>
</xs:sequence>
<xs:attribute name="id" type="xs:string"/><xs:attribute name="time" type="xs:string"/>
<xs:attribute name="topic" type="xs:string"/><xs:attribute name="availability" type="xs:string"/>
</xs:complexType>
<xs:element name="event" type="e:EventType"/>
{
    _element(
        "Publish",
        '<xs:element ref="e:Topic"/><xs:element name="IdempotencyKey" type="xs:string" minOccurs="0"/>'
        '<xs:element ref="e:event" maxOccurs="unbounded"/>',
    )
}
{
    _element(
        "PublishResponse",
        '<xs:element name="Accepted" type="xs:int"/>'
        '<xs:element ref="e:Id" minOccurs="0" maxOccurs="unbounded"/>',
    )
}
<xs:element name="TopicDescription"><xs:complexType><xs:sequence>{_ATTRIBUTE}</xs:sequence>
<xs:attribute name="name" type="xs:string"/><xs:attribute name="engine" type="xs:string"/>
<xs:attribute name="availability" type="xs:string"/><xs:attribute name="revision" type="xs:int"/>
</xs:complexType></xs:element>
{
    _element(
        "CreateTopic",
        '<xs:element ref="e:Topic"/><xs:element name="Attributes"><xs:complexType><xs:sequence>'
        f"{_ATTRIBUTE}</xs:sequence></xs:complexType></xs:element>"
        '<xs:element name="Engine" type="xs:anyURI" minOccurs="0"/>'
        '<xs:element name="Availability" type="xs:string" minOccurs="0"/>',
    )
}
{_element("CreateTopicResponse", '<xs:element ref="e:TopicDescription"/>')}
{
    _element(
        "DeleteTopic",
        '<xs:element ref="e:Topic"/><xs:element name="Cascade" type="xs:boolean" minOccurs="0"/>',
    )
}
{_element("DeleteTopicResponse", "")}
{_element("EnumerateTopics", "")}
{
    _element(
        "EnumerateTopicsResponse",
        '<xs:element ref="e:TopicDescription" minOccurs="0" maxOccurs="unbounded"/>',
    )
}
<xs:element name="Name" type="xs:string"/>
<xs:element name="Binding"><xs:complexType><xs:sequence>
<xs:element name="Server" type="xs:string" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
<xs:attribute name="name" type="xs:string"/><xs:attribute name="engine" type="xs:string"/>
</xs:complexType></xs:element>
{
    _element(
        "CreateRoute",
        '<xs:element ref="e:Name"/>'
        '<xs:element name="Server" type="xs:string" minOccurs="0" maxOccurs="unbounded"/>'
        '<xs:element name="Engine" type="xs:anyURI" minOccurs="0"/>'
        f"{_MORE}",
    )
}
{_element("CreateRouteResponse", '<xs:element ref="e:Binding"/>')}
{_element("DeleteRoute", f'<xs:element ref="e:Name"/>{_MORE}')}
{_element("DeleteRouteResponse", "")}
{_element("EnumerateRoutes", f'<xs:element ref="e:Name" minOccurs="0"/>{_MORE}')}
{
    _element(
        "EnumerateRoutesResponse",
        '<xs:element name="Route" minOccurs="0" maxOccurs="unbounded"><xs:complexType>'
        '<xs:attribute name="name" type="xs:string"/><xs:attribute name="server" type="xs:string"/>'
        '<xs:attribute name="subscriptions" type="xs:int"/><xs:attribute name="rectangles" type="xs:int"/>'
        '<xs:attribute name="maximal" type="xs:int"/><xs:attribute name="precision" type="xs:double"/>'
        '<xs:attribute name="bytes" type="xs:long"/><xs:attribute name="everything" type="xs:boolean"/>'
        '<xs:attribute name="revision" type="xs:string"/>'
        "</xs:complexType></xs:element>"
        '<xs:element ref="e:Binding" minOccurs="0" maxOccurs="unbounded"/>',
    )
}
</xs:schema>"""
