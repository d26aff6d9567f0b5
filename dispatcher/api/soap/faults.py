"""Converts errors to SOAP faults.

The detail contains the problem document of REST, one element per field, so that programs find the pointer and
the status.
"""

from __future__ import annotations

from lxml import etree

from edn.errors import EdnError, InvalidFilter, InvalidSink, Overloaded, Unavailable
from edn.formats import xml
from edn.formats.event_xml import NAMESPACE
from edn.formats.soap.envelope import Fault
from edn.formats.soap.eventing import Vocabulary
from edn.formats.xml import Element


def translate(error: EdnError) -> Fault:
    retryable = error.status >= 500 or isinstance(error, Overloaded)
    return Fault("Receiver" if retryable else "Sender", error.detail, detail=[problem(error)])


def problem(error: EdnError) -> Element:
    """Converts an error to an XML problem document."""
    root = etree.Element(f"{{{NAMESPACE}}}Problem", nsmap={"e": NAMESPACE})
    for name, value in error.problem().items():
        if name != "errors" and value is not None:
            etree.SubElement(root, f"{{{NAMESPACE}}}{name}").text = xml.valid_text(str(value))
    if error.pointer is not None:
        etree.SubElement(root, f"{{{NAMESPACE}}}pointer").text = xml.valid_text(error.pointer)
    if error.retry_after is not None:
        etree.SubElement(root, f"{{{NAMESPACE}}}retryAfter").text = str(error.retry_after)
    return root


def eventing_fault(
    words: Vocabulary, name: str, error: EdnError | str, detail: Element | None = None
) -> Fault:
    is_ours = not isinstance(error, str) and error.status >= 500
    details = [] if detail is None else [detail]
    if isinstance(error, EdnError):
        details.append(problem(error))
    return Fault(
        "Receiver" if is_ours else "Sender",
        error if isinstance(error, str) else error.detail,
        subcode=words.fault(name),
        detail=details,
        action=words.fault_action,
    )


def subscribe_fault(words: Vocabulary, error: EdnError) -> Fault:
    """Converts an error of Subscribe or Renew."""
    name = words.faults.message
    if isinstance(error, Unavailable | Overloaded):
        name = words.faults.unable
    elif isinstance(error, InvalidFilter):
        name = words.faults.filter
    elif isinstance(error, InvalidSink):
        name = words.faults.endpoint
    elif error.pointer == "/expires":
        name = words.faults.expiration
    return eventing_fault(words, name, error)
