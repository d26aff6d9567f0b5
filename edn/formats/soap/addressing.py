"""WS-Addressing: message headers and endpoint references, in the two editions in use.

A reference parameter is an element of an endpoint reference that every message to the endpoint repeats,
unchanged, as a header. The edition of 2004 calls some of them reference properties.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from lxml import etree

from edn.formats import xml
from edn.formats.soap.envelope import Envelope, Fault
from edn.formats.xml import Element


@dataclass(frozen=True, slots=True)
class Addressing:
    """One edition of WS-Addressing."""

    namespace: str
    anonymous: str
    #: address for answers that are not sent
    nowhere: str | None
    #: action of faults without an action of their own
    fault_action: str

    def tag(self, name: str) -> str:
        return f"{{{self.namespace}}}{name}"


WSA_2005 = Addressing(
    "http://www.w3.org/2005/08/addressing",
    "http://www.w3.org/2005/08/addressing/anonymous",
    "http://www.w3.org/2005/08/addressing/none",
    "http://www.w3.org/2005/08/addressing/fault",
)
WSA_2004 = Addressing(
    "http://schemas.xmlsoap.org/ws/2004/08/addressing",
    "http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous",
    None,
    "http://schemas.xmlsoap.org/ws/2004/08/addressing/fault",
)
EDITIONS = {edition.namespace: edition for edition in (WSA_2005, WSA_2004)}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint reference: an address and its reference parameters."""

    address: str
    #: reference parameters as canonical XML
    parameters: tuple[str, ...] = ()

    @classmethod
    def read(cls, reference: Element) -> Self:
        """Reads an element of the type EndpointReference; raises `Fault`."""
        for edition in EDITIONS.values():
            found = reference.find(edition.tag("Address"))
            if found is not None:
                break
        else:
            raise Fault("Sender", f"{xml.local_name(reference)} must contain wsa:Address")
        parameters = [
            canonical(one)
            for name in ("ReferenceProperties", "ReferenceParameters")
            for holder in reference.findall(edition.tag(name))
            for one in holder
        ]
        return cls(xml.text_of(found), tuple(parameters))

    def write(self, parent: Element, edition: Addressing) -> None:
        """Fills an element of the type EndpointReference."""
        etree.SubElement(parent, edition.tag("Address")).text = self.address
        if self.parameters:
            holder = etree.SubElement(parent, edition.tag("ReferenceParameters"))
            for one in self.parameters:
                holder.append(xml.fragment(one))

    def headers(self, edition: Addressing) -> Iterable[Element]:
        """Yields the reference parameters as headers of a message."""
        for one in self.parameters:
            header = xml.fragment(one)
            if edition is WSA_2005:
                header.set(edition.tag("IsReferenceParameter"), "true")
            yield header


def canonical(element: Element) -> str:
    """Returns an element as XML with only the namespaces that it uses; raises `Fault`."""
    try:
        return etree.tostring(element, method="c14n", exclusive=True, with_tail=False).decode()
    except etree.C14NError:
        name = xml.local_name(element)
        raise Fault(
            "Sender",
            f"the namespaces of {name[:80]} must be absolute URIs, such as urn:mine",
        ) from None


@dataclass(frozen=True, slots=True)
class Headers:
    """The WS-Addressing headers of a request."""

    edition: Addressing = WSA_2005
    #: whether the request has any
    given: bool = False
    action: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    fault_to: str | None = None
    others: Sequence[Element] = field(default=(), repr=False)

    def other(self, name: str) -> Element | None:
        """Returns a header that is not part of WS-Addressing."""
        return next((header for header in self.others if header.tag == name), None)


def read(envelope: Envelope) -> Headers:
    """Reads the headers of a request; raises `Fault` for repeated headers and answers to other endpoints."""
    found: dict[str, Element] = {}
    edition: Addressing | None = None
    others = []
    for header in envelope.headers:
        known = EDITIONS.get(xml.namespace_of(header))
        if known is None:
            others.append(header)
            continue
        if edition is not None and known is not edition:
            raise _fault(edition, "InvalidAddressingHeader", "the headers mix two editions of WS-Addressing")
        edition = known
        name = xml.local_name(header)
        if name in found and name != "RelatesTo":
            raise _fault(edition, "InvalidAddressingHeader", f"wsa:{name} is repeated")
        found[name] = header
    if edition is None:
        return Headers(others=others)
    headers = Headers(
        edition=edition,
        given=True,
        action=xml.text_of(found.get("Action")) or None,
        message_id=xml.text_of(found.get("MessageID")) or None,
        reply_to=_address(found.get("ReplyTo"), edition),
        fault_to=_address(found.get("FaultTo"), edition),
        others=others,
    )
    if headers.action is None:
        reason = "a message with WS-Addressing headers must have wsa:Action"
        raise _fault(edition, "MessageAddressingHeaderRequired", reason)
    for target in (headers.reply_to, headers.fault_to):
        if target not in (None, edition.anonymous, edition.nowhere):
            reason = "ReplyTo and FaultTo must be anonymous: answers use the connection of the request"
            raise _fault(edition, "OnlyAnonymousAddressSupported", reason)
    return headers


def _address(reference: Element | None, edition: Addressing) -> str | None:
    return None if reference is None else xml.text_of(reference.find(edition.tag("Address"))) or None


def _fault(edition: Addressing, subcode: str, reason: str) -> Fault:
    name = etree.QName(edition.namespace, subcode)
    return Fault("Sender", reason, subcode=name, action=edition.fault_action)


def message_headers(
    edition: Addressing,
    *,
    action: str,
    message_id: str | None = None,
    to: str | None = None,
    relates_to: str | None = None,
    must_understand: str | None = None,
) -> list[Element]:
    """Builds the headers of a message; `must_understand` is the attribute that marks the action."""
    values = {
        "Action": action,
        "MessageID": message_id or uuid.uuid4().urn,
        "To": to,
        "RelatesTo": relates_to,
    }
    headers = []
    for name, value in values.items():
        if value is not None:
            header = etree.Element(edition.tag(name), nsmap={"a": edition.namespace})
            header.text = xml.valid_text(value)
            headers.append(header)
    if must_understand is not None:
        headers[0].set(must_understand, "1")
    return headers
