"""Our errors as SOAP faults: what is wrong with a request is the sender's, what is wrong here the receiver's.

The detail holds the problem as REST would have told it, element by element, so that a program finds the place
and the status there, too.
"""

from __future__ import annotations

from collections.abc import Callable

from lxml import etree

from edn.errors import EdnError, InvalidFilter, InvalidSink, NotFound, Overloaded, Unavailable
from edn.formats import xml
from edn.formats.event_xml import NAMESPACE
from edn.formats.soap.envelope import Fault
from edn.formats.soap.eventing import Vocabulary
from edn.formats.xml import Element


def translate(error: EdnError) -> Fault:
    """An error that no operation has a fault of its own for."""
    ours = error.status >= 500 or isinstance(error, Overloaded)
    return Fault("Receiver" if ours else "Sender", error.detail, detail=[problem(error)])


def problem(error: EdnError) -> Element:
    """The problem as an element."""
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
    """A fault of WS-Eventing."""
    reason = error if isinstance(error, str) else error.detail
    parts = [] if isinstance(error, str) else [problem(error)]
    ours = not isinstance(error, str) and error.status >= 500
    return Fault(
        "Receiver" if ours else "Sender",
        reason,
        subcode=words.fault(name),
        detail=parts if detail is None else [detail, *parts],
        action=words.fault_action,
    )


def of_subscribing(words: Vocabulary, error: EdnError) -> Fault:
    """What was wrong with a subscription."""
    faults = words.faults
    kinds: list[tuple[Callable[[EdnError], bool], str]] = [
        (lambda error: isinstance(error, Unavailable | Overloaded), faults.unable),
        (lambda error: isinstance(error, InvalidFilter), faults.filter),
        (lambda error: isinstance(error, InvalidSink), faults.endpoint),
        (lambda error: error.pointer == "/expires", faults.expiration),
        (lambda error: isinstance(error, NotFound), faults.message),
    ]
    for holds, name in kinds:
        if holds(error):
            return eventing_fault(words, name, error)
    return eventing_fault(words, faults.message, error)
