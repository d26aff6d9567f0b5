"""WS-Addressing: who a message is for, what it means, and endpoint references, in the two namespaces in use.

A reference parameter is an element that its owner gave with an address and wants back, as it is, as a header
of every message to that address. The submission of 2004 calls some of them reference properties.
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
    #: the address that nothing is sent to
    nowhere: str | None
    #: the action of a fault that has none of its own
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
    """An endpoint reference: where, and what has to be said there besides."""

    address: str
    #: reference parameters, as text that stands for itself
    parameters: tuple[str, ...] = ()

    @classmethod
    def read(cls, reference: Element) -> Self:
        """Of an element that has the content of an endpoint reference; raises `Fault`."""
        for edition in EDITIONS.values():
            found = reference.find(edition.tag("Address"))
            if found is not None:
                break
        else:
            raise Fault("Sender", f"{xml.local_name(reference)} holds no wsa:Address")
        parameters = [
            standing_alone(one)
            for name in ("ReferenceProperties", "ReferenceParameters")
            for holder in reference.findall(edition.tag(name))
            for one in holder
        ]
        return cls(xml.text_of(found), tuple(parameters))

    def write(self, parent: Element, edition: Addressing) -> None:
        """Into an element that has the content of an endpoint reference."""
        etree.SubElement(parent, edition.tag("Address")).text = self.address
        if self.parameters:
            holder = etree.SubElement(parent, edition.tag("ReferenceParameters"))
            for one in self.parameters:
                holder.append(xml.fragment(one))

    def headers(self, edition: Addressing) -> Iterable[Element]:
        """What a message to this endpoint says besides its address."""
        for one in self.parameters:
            header = xml.fragment(one)
            if edition is WSA_2005:
                header.set(edition.tag("IsReferenceParameter"), "true")
            yield header


def standing_alone(element: Element) -> str:
    """An element as text with the namespaces that it uses, and no others; raises `Fault`."""
    try:
        return etree.tostring(element, method="c14n", exclusive=True, with_tail=False).decode()
    except etree.C14NError:
        name = xml.local_name(element)
        raise Fault(
            "Sender",
            f"{name[:80]} cannot be kept as it is: its namespaces must be absolute URIs, such as urn:mine",
        ) from None


@dataclass(frozen=True, slots=True)
class Headers:
    """What a request's headers say."""

    edition: Addressing = WSA_2005
    #: whether there were any
    given: bool = False
    action: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    fault_to: str | None = None
    others: Sequence[Element] = field(default=(), repr=False)

    def other(self, name: str) -> Element | None:
        """A header that is not WS-Addressing's."""
        return next((header for header in self.others if header.tag == name), None)


def read(envelope: Envelope) -> Headers:
    """The headers of a request; raises `Fault` for one that occurs twice or asks for an answer elsewhere."""
    found: dict[str, Element] = {}
    edition: Addressing | None = None
    others = []
    for header in envelope.headers:
        known = EDITIONS.get(xml.namespace_of(header))
        if known is None:
            others.append(header)
            continue
        if edition is not None and known is not edition:
            raise _invalid(edition, "the headers are of two editions of WS-Addressing")
        edition = known
        name = xml.local_name(header)
        if name in found and name != "RelatesTo":
            raise _invalid(edition, f"wsa:{name} occurs twice")
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
        raise Fault(
            "Sender",
            "a message with WS-Addressing headers needs wsa:Action",
            subcode=etree.QName(edition.namespace, "MessageAddressingHeaderRequired"),
            action=edition.fault_action,
        )
    for target in (headers.reply_to, headers.fault_to):
        if target not in (None, edition.anonymous, edition.nowhere):
            raise Fault(
                "Sender",
                "answers are given on the connection of the request; ReplyTo and FaultTo must be anonymous",
                subcode=etree.QName(edition.namespace, "OnlyAnonymousAddressSupported"),
                action=edition.fault_action,
            )
    return headers


def _address(reference: Element | None, edition: Addressing) -> str | None:
    return None if reference is None else xml.text_of(reference.find(edition.tag("Address"))) or None


def _invalid(edition: Addressing, reason: str) -> Fault:
    return Fault(
        "Sender",
        reason,
        subcode=etree.QName(edition.namespace, "InvalidAddressingHeader"),
        action=edition.fault_action,
    )


def message_headers(
    edition: Addressing,
    *,
    action: str,
    message_id: str | None = None,
    to: str | None = None,
    relates_to: str | None = None,
    must_understand: str | None = None,
) -> list[Element]:
    """The headers of a message that we send; `must_understand` is the attribute that marks the action."""
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
            header.text = xml.sayable(value)
            headers.append(header)
    if must_understand is not None:
        headers[0].set(must_understand, "1")
    return headers
