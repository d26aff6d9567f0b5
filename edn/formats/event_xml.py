"""The XML form of an event: one element per field, nested like the objects, one per element of an array.

    {"symbol": "GE", "price": 31.5, "at": {"floor": 3}, "tags": ["a", "b"]}

    <e:event xmlns:e="urn:edn:soap"><symbol>GE</symbol><price>31.5</price><at><floor>3</floor></at>
    <tags>a</tags><tags>b</tags></e:event>

An array inside an array is written as JSON text, and null in an array as an element with `xsi:nil`. A dotted
key of the event is nested, too. In the other direction, the values of undeclared fields are strings.

Numbers are decimals without an exponent, the only form that XPath 1.0 reads; booleans are `true` and `false`.
A part of a name that is not an XML name is escaped as `_x0031_st`. Characters that are invalid in XML become
U+FFFD. Toolkits with fixed element names may send `<e:attribute name="price">31.5</e:attribute>`.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
from lxml import etree

from edn.errors import MalformedXml
from edn.formats.xml import Element, local_name, valid_text

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
    """Escapes a part of an attribute's name as the name of an element; the empty name becomes `_`."""
    if not part:
        return "_"
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
        case bytes():
            return base64.b64encode(value).decode()
    return str(value)


def decimal(number: float) -> str:
    """Formats a double with the fewest digits that identify it, without an exponent."""
    if number.is_integer() and abs(number) < 1e16:
        return str(int(number))
    shortest = repr(number)
    return shortest if "e" not in shortest else format(Decimal(shortest), "f")


def build(attributes: Iterable[tuple[str, str]], parent: Element | None = None) -> Element:
    """Builds an event from pairs of dotted name and text, for XPath."""
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


def build_document(event: Mapping[str, Any]) -> Element:
    """Builds an event from its JSON object."""
    root = etree.Element(EVENT, nsmap=_PREFIXES)
    for name, value in event.items():
        place = root
        *outer, last = name.split(".")
        for part in outer:
            inner = place.find(element_name(part))
            place = etree.SubElement(place, element_name(part)) if inner is None else inner
        known = place.find(element_name(last)) if isinstance(value, Mapping) else None
        if known is not None:  # from a dotted key
            _fill(known, value)
        else:
            _append(place, last, value)
    return root


def _append(parent: Element, name: str, value: Any) -> None:
    """Adds a field of an object; null is missing."""
    if isinstance(value, list):
        for one in value:
            element = etree.SubElement(parent, element_name(name))
            if one is None:
                element.set(_NIL, "true")
            else:
                _fill(element, one)
    elif value is not None:
        _fill(etree.SubElement(parent, element_name(name)), value)


def _fill(element: Element, value: Any) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _append(element, name, inner)
        return
    text = valid_text(msgspec.json.encode(value).decode()) if isinstance(value, list) else format_value(value)
    if text:  # parsers create no text node for an empty text
        element.text = text


def read(event: Element, types: Mapping[str, str]) -> dict[str, Any]:
    """Reads an event as a JSON object, with values of the topic's types; arrays are of type `string[]`.

    Values of a wrong type stay strings, as those of undeclared fields do; the check of events refuses them.
    """
    return _read_object(event, "", types)


def _read_object(parent: Element, prefix: str, types: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for child in parent:
        place, path = found, prefix
        if child.tag == ATTRIBUTE:
            *outer, name = _given_name(child).split(".")
            for part in outer:
                path += part + "."
                inner = place.setdefault(part, {})
                if not isinstance(inner, dict):
                    raise MalformedXml(f'element "{part[:60]}" must not have both a text and attributes')
                place = inner
        else:
            name = attribute_part(local_name(child))
        type_ = types.get(path + name, "")
        if len(child):
            _add(place, name, _read_object(child, f"{path}{name}.", types), type_)
        elif child.get(_NIL) not in ("true", "1"):
            _add(place, name, _value(child.text or "", type_.removesuffix("[]")), type_)
    return found


def _given_name(child: Element) -> str:
    name = child.get("name")
    if not name:
        raise MalformedXml("an attribute of an event must have a name: <e:attribute name=…>")
    return str(name)


def _add(place: dict[str, Any], name: str, value: Any, type_: str) -> None:
    """Adds a value; repeated elements, and all values of a declared array, are an array."""
    if name not in place:
        place[name] = [value] if type_.endswith("[]") else value
    elif isinstance(place[name], list):
        place[name].append(value)
    else:
        place[name] = [place[name], value]


def _value(content: str, type_: str | None) -> Any:
    bare = content.strip()
    if type_ == "number" and len(bare) <= _LONGEST_NUMBER and _DECIMAL.match(bare):
        number = float(bare)
        return number if math.isfinite(number) else content
    if type_ == "integer" and _WHOLE.match(bare):
        return int(bare)
    if type_ == "boolean" and bare in ("true", "1", "false", "0"):
        return bare in ("true", "1")
    if type_ in ("time", "bytes"):
        return bare
    return content
