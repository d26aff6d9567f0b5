"""The XML form of an event: one element per attribute, dots in names as nesting.

    {"symbol": "GE", "price": 31.5, "at.floor": 3}

    <e:event xmlns:e="urn:edn:soap"><symbol>GE</symbol><price>31.5</price><at><floor>3</floor></at></e:event>

Numbers are decimals without an exponent, the only form that XPath 1.0 reads; booleans are `true` and `false`.
A part of a name that is not an XML name is escaped as `_x0031_st`. Characters that are invalid in XML become
U+FFFD. Toolkits with fixed element names may send `<e:attribute name="price">31.5</e:attribute>`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from lxml import etree

from edn.formats.xml import Element, local_name, namespace_of, valid_text

#: namespace of all elements of the network
NAMESPACE = "urn:edn:soap"
EVENT = f"{{{NAMESPACE}}}event"
ATTRIBUTE = f"{{{NAMESPACE}}}attribute"
_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_PREFIXES = {"e": NAMESPACE}

#: names that need no escape
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z", re.ASCII)
_ESCAPE = re.compile(r"_x([0-9A-F]{4,6})_")
_ESCAPED = re.compile(r"_(?=x[0-9A-F]{4,6}_)|[^A-Za-z0-9_-]|\A[0-9-]", re.ASCII)

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}\Z", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?\Z", re.ASCII)
#: longer texts are not parsed as numbers
_LONGEST_NUMBER = 400


def element_name(part: str) -> str:
    """Escapes a part of an attribute's name as the name of an element."""
    return part if _PLAIN.match(part) and "_x" not in part else _ESCAPED.sub(_escape, part)


def attribute_part(name: str) -> str:
    """Reverses `element_name`."""
    return _ESCAPE.sub(_unescape, name) if "_x" in name else name


def _escape(found: re.Match[str]) -> str:
    return f"_x{ord(found.group()):04X}_"


def _unescape(found: re.Match[str]) -> str:
    point = int(found.group(1), 16)
    return chr(point) if point < 0x110000 and not 0xD800 <= point < 0xE000 else found.group()


def format_value(value: object) -> str:
    """Formats a JSON value as the text of its element."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return decimal(value)
        case str():
            return valid_text(value)
    return str(value)


def decimal(number: float) -> str:
    """Formats a double with the fewest digits that identify it, without an exponent."""
    if number.is_integer() and abs(number) < 1e16:
        return str(int(number))
    shortest = repr(number)
    return shortest if "e" not in shortest else format(Decimal(shortest), "f")


def build(attributes: Iterable[tuple[str, str]], parent: Element | None = None) -> Element:
    """Builds an event from pairs of dotted name and text."""
    root = etree.Element(EVENT, nsmap=_PREFIXES) if parent is None else parent
    inner: dict[str, Element] = {}
    for name, content in attributes:
        place = root
        if "." in name:
            *outer, name = name.split(".")
            path = ""
            for part in outer:
                path = f"{path}.{part}"
                known = inner.get(path)
                if known is None:
                    known = inner[path] = etree.SubElement(place, element_name(part))
                place = known
        leaf = etree.SubElement(place, element_name(name))
        if content:  # parsers create no text node for an empty text
            leaf.text = content
    return root


def flatten(attributes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields pairs of dotted name and text for a JSON object; nulls are missing."""
    for name, value in attributes.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, format_value(value)


def read(event: Element, types: Mapping[str, str]) -> dict[str, Any]:
    """Reads the attributes of an event as JSON values of the topic's types.

    Values of a wrong type stay strings, and unknown attributes are returned; the check of events refuses
    both.
    """
    found: dict[str, Any] = {}
    _read_into(found, event, "", types)
    return found


def _read_into(found: dict[str, Any], parent: Element, prefix: str, types: Mapping[str, str]) -> None:
    for child in parent:
        if child.tag == ATTRIBUTE and child.get("name") is not None:
            name = prefix + str(child.get("name"))
        elif namespace_of(child) == NAMESPACE and not prefix and local_name(child) == "attribute":
            name = ""  # a missing name: refused by the check of events
        else:
            name = prefix + attribute_part(local_name(child))
        if len(child):
            _read_into(found, child, name + ".", types)
        elif child.get(_NIL) not in ("true", "1"):
            value = _value(child.text or "", types.get(name))
            # A repeated element is an array, which the check of events refuses.
            found[name] = [found[name], value] if name in found else value


def _value(content: str, type_: str | None) -> Any:
    bare = content.strip()
    if type_ == "number" and len(bare) <= _LONGEST_NUMBER and _DECIMAL.match(bare):
        number = float(bare)
        return number if math.isfinite(number) else content
    if type_ == "integer" and _WHOLE.match(bare):
        return int(bare)
    if type_ == "boolean" and bare in ("true", "1", "false", "0"):
        return bare in ("true", "1")
    if type_ == "time":
        return bare
    return content
