"""Operations of the SOAP interface: requests, replies, and the table of operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from lxml import etree

from dispatcher.auth.caller import Caller, Need
from edn.formats import xml
from edn.formats.event_xml import NAMESPACE
from edn.formats.soap.addressing import Headers
from edn.formats.soap.envelope import Envelope, Fault
from edn.formats.xml import Element


def tag(name: str) -> str:
    """Returns a name in edn's namespace."""
    return f"{{{NAMESPACE}}}{name}"


def action(name: str) -> str:
    return f"{NAMESPACE}/{name}"


def new_element(name: str, /, **attributes: str) -> Element:
    return etree.Element(tag(name), nsmap={"e": NAMESPACE}, attrib=attributes)


@dataclass(frozen=True, slots=True)
class Request:
    envelope: Envelope
    headers: Headers
    #: the one element of the body
    payload: Element
    #: URL of the endpoint, as the client reaches it
    url: str
    #: `topic` parameter of the URL
    url_topic: str | None
    caller: Caller

    def text(self, name: str) -> str:
        """Returns the text of a child of the payload in edn's namespace, empty if there is none."""
        return xml.text_of(self.payload.find(tag(name)))

    @property
    def topic(self) -> str | None:
        """The topic: in the body, in a header, or in the URL."""
        element = self.payload.find(tag("Topic"))
        if element is None:
            element = self.headers.other(tag("Topic"))
        return xml.text_of(element) or self.url_topic

    def require_topic(self) -> str:
        if self.topic is None:
            name = etree.QName(self.payload).localname
            raise Fault("Sender", f"{name} must name a topic, such as <e:Topic>stocks</e:Topic>")
        return self.topic


@dataclass(frozen=True, slots=True)
class Reply:
    #: wsa:Action of the reply
    action: str
    payload: Element | None

    @classmethod
    def of(cls, payload: Element) -> Self:
        return cls(action(etree.QName(payload).localname), payload)


@dataclass(frozen=True, slots=True)
class Operation:
    run: Callable[[Request], Awaitable[Reply]]
    #: wsa:Action of the request
    action: str
    need: Need


#: element of the body → operation
Table = dict[str, Operation]
