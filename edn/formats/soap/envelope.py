"""Messages and faults of SOAP 1.1 and 1.2.

The body of a message has at most one element. A fault is raised as an exception; `fault_body` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lxml import etree

from edn.formats import xml
from edn.formats.xml import Element

Code = Literal["VersionMismatch", "MustUnderstand", "Sender", "Receiver"]
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


@dataclass(frozen=True, slots=True)
class Version:
    name: str
    namespace: str
    media_type: str
    #: attribute of a header that names its receiver
    role: str
    #: values of that attribute for this node
    ours: frozenset[str]

    def content_type(self, action: str) -> str:
        """Returns the value of Content-Type, which contains the action in SOAP 1.2."""
        if self is SOAP_12 and action:
            return f'{self.media_type}; charset=utf-8; action="{action}"'
        return f"{self.media_type}; charset=utf-8"


SOAP_11 = Version(
    "1.1",
    "http://schemas.xmlsoap.org/soap/envelope/",
    "text/xml",
    "actor",
    frozenset({"", "http://schemas.xmlsoap.org/soap/actor/next"}),
)
SOAP_12 = Version(
    "1.2",
    "http://www.w3.org/2003/05/soap-envelope",
    "application/soap+xml",
    "role",
    frozenset(
        {
            "",
            "http://www.w3.org/2003/05/soap-envelope/role/next",
            "http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver",
        }
    ),
)
VERSIONS = {version.name: version for version in (SOAP_11, SOAP_12)}
_BY_NAMESPACE = {version.namespace: version for version in (SOAP_11, SOAP_12)}


class Fault(Exception):
    """A SOAP fault."""

    def __init__(
        self,
        code: Code,
        reason: str,
        *,
        subcode: etree.QName | None = None,
        detail: Sequence[Element] = (),
        action: str | None = None,
        not_understood: Sequence[etree.QName] = (),
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.subcode = subcode
        self.detail = list(detail)
        #: value of wsa:Action; None for the general one of faults
        self.action = action
        #: mandatory headers that are unknown
        self.not_understood = list(not_understood)


@dataclass(frozen=True, slots=True)
class Envelope:
    version: Version
    headers: list[Element]
    #: the element of the body
    payload: Element | None
    root: Element = field(repr=False)

    def mandatory(self) -> list[Element]:
        """Returns the headers that this node must understand."""
        namespace = f"{{{self.version.namespace}}}"
        return [
            header
            for header in self.headers
            if header.get(f"{namespace}mustUnderstand") in ("1", "true")
            and (header.get(namespace + self.version.role) or "") in self.version.ours
        ]


def read(data: bytes, *, limit: int = xml.MAX_BYTES) -> Envelope:
    """Reads a message; raises `Fault` and the errors of `edn.formats.xml.parse`."""
    root = xml.parse(data, limit=limit)
    version = _BY_NAMESPACE.get(xml.namespace_of(root))
    if xml.local_name(root) != "Envelope" or version is None:
        reason = f"the root must be an Envelope of SOAP 1.1 or 1.2, got {root.tag[:200]}"
        raise Fault("VersionMismatch", reason)
    header = root.find(f"{{{version.namespace}}}Header")
    body = root.find(f"{{{version.namespace}}}Body")
    if body is None:
        raise Fault("Sender", "the Envelope must have a Body")
    if len(body) > 1:
        raise Fault("Sender", f"the Body must have one element, got {len(body)}")
    headers = [] if header is None else list(header)
    return Envelope(version, headers, body[0] if len(body) else None, root)


def write(version: Version, headers: Iterable[Element], payload: Element | None) -> bytes:
    """Encodes a message."""
    envelope = etree.Element(f"{{{version.namespace}}}Envelope", nsmap={"s": version.namespace})
    header = etree.SubElement(envelope, f"{{{version.namespace}}}Header")
    header.extend(headers)
    body = etree.SubElement(envelope, f"{{{version.namespace}}}Body")
    if payload is not None:
        body.append(payload)
    return etree.tostring(envelope, xml_declaration=True, encoding="UTF-8")


def fault_body(version: Version, fault: Fault) -> Element:
    """Builds the Fault element."""
    namespace = version.namespace
    prefixes = {"s": namespace}
    if fault.subcode is not None and fault.subcode.namespace:
        prefixes["f"] = fault.subcode.namespace
    root = etree.Element(f"{{{namespace}}}Fault", nsmap=prefixes)
    if version is SOAP_11:
        code = {"Sender": "Client", "Receiver": "Server"}.get(fault.code, fault.code)
        # SOAP 1.1 has one code; WS-Addressing requires the subcode there.
        shown = f"f:{fault.subcode.localname}" if fault.subcode is not None else f"s:{code}"
        _leaf(root, "faultcode", shown)
        _leaf(root, "faultstring", fault.reason)
        if fault.detail:
            etree.SubElement(root, "detail").extend(fault.detail)
        return root
    code_element = etree.SubElement(root, f"{{{namespace}}}Code")
    _leaf(code_element, f"{{{namespace}}}Value", f"s:{fault.code}")
    if fault.subcode is not None:
        subcode = etree.SubElement(code_element, f"{{{namespace}}}Subcode")
        _leaf(subcode, f"{{{namespace}}}Value", f"f:{fault.subcode.localname}")
    reason = etree.SubElement(root, f"{{{namespace}}}Reason")
    _leaf(reason, f"{{{namespace}}}Text", fault.reason).set(_XML_LANG, "en")
    if fault.detail:
        etree.SubElement(root, f"{{{namespace}}}Detail").extend(fault.detail)
    return root


def not_understood(version: Version, fault: Fault) -> list[Element]:
    """Builds the headers of SOAP 1.2 that name the headers that were not understood."""
    if version is not SOAP_12:
        return []
    headers = []
    for name in fault.not_understood:
        header = etree.Element(
            f"{{{version.namespace}}}NotUnderstood", nsmap={"n": name.namespace} if name.namespace else None
        )
        header.set("qname", f"n:{name.localname}" if name.namespace else name.localname)
        headers.append(header)
    return headers


def _leaf(parent: Element, name: str, content: str) -> Element:
    leaf = etree.SubElement(parent, name)
    leaf.text = xml.valid_text(content)
    return leaf
