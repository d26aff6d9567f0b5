"""An event as XML: an element an attribute, dots as nesting; how it is written, and how one is read.

    {"symbol": "GE", "price": 31.5, "at.floor": 3}

    <e:event xmlns:e="urn:edn:soap"><symbol>GE</symbol><price>31.5</price><at><floor>3</floor></at></e:event>

Numbers are plain decimals, without an exponent, because XPath 1.0 reads no other; booleans are `true` and
`false`. A part of a name that is no XML name is escaped as `_x0031_st`. What XML cannot say (control
characters) becomes U+FFFD. An attribute may come as `<e:attribute name="price">31.5</e:attribute>`, too, for
toolkits that cannot choose the names of elements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from lxml import etree

from edn.formats.xml import Element, local_name, namespace_of, sayable

#: of all elements that are ours
NAMESPACE = "urn:edn:soap"
EVENT = f"{{{NAMESPACE}}}event"
ATTRIBUTE = f"{{{NAMESPACE}}}attribute"
_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_PREFIXES = {"e": NAMESPACE}

#: names that are the same in XML; others are escaped, character by character where it must be
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z", re.ASCII)
_ESCAPE = re.compile(r"_x([0-9A-F]{4,6})_")
_ESCAPED = re.compile(r"_(?=x[0-9A-F]{4,6}_)|[^A-Za-z0-9_-]|\A[0-9-]", re.ASCII)

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}\Z", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?\Z", re.ASCII)
#: longer texts are no numbers that anybody wrote
_LONGEST_NUMBER = 400


def element_name(part: str) -> str:
    """A part of an attribute's name as the name of an element."""
    return part if _PLAIN.match(part) and "_x" not in part else _ESCAPED.sub(_escape, part)


def attribute_part(name: str) -> str:
    """The part that `element_name` made an element's name of."""
    return _ESCAPE.sub(_unescape, name) if "_x" in name else name


def _escape(found: re.Match[str]) -> str:
    return f"_x{ord(found.group()):04X}_"


def _unescape(found: re.Match[str]) -> str:
    point = int(found.group(1), 16)
    return chr(point) if point < 0x110000 and not 0xD800 <= point < 0xE000 else found.group()


def text(value: object) -> str:
    """A value of JSON as the text of its element."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return decimal(value)
        case str():
            return sayable(value)
    return str(value)


def decimal(number: float) -> str:
    """A double in as few digits as tell it from all others, without an exponent."""
    if number.is_integer() and abs(number) < 1e16:
        return str(int(number))
    shortest = repr(number)
    return shortest if "e" not in shortest else format(Decimal(shortest), "f")


def build(attributes: Iterable[tuple[str, str]], parent: Element | None = None) -> Element:
    """The event of (dotted name, text); the last part of a name is the leaf."""
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
        if content:  # an empty text would be a node that no parser would find again
            leaf.text = content
    return root


def flat(attributes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, text) of a JSON object; nulls are missing."""
    for name, value in attributes.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, text(value)


def read(event: Element, types: Mapping[str, str]) -> dict[str, Any]:
    """The attributes of an event as JSON would have them, by the types of its topic.

    What is not what its type wants stays a string, and what the topic does not have stays there: the check of
    events, which follows, says what is wrong in its own words.
    """
    found: dict[str, Any] = {}
    _read_into(found, event, "", types)
    return found


def _read_into(found: dict[str, Any], parent: Element, prefix: str, types: Mapping[str, str]) -> None:
    for child in parent:
        if child.tag == ATTRIBUTE and child.get("name") is not None:
            name = prefix + str(child.get("name"))
        elif namespace_of(child) == NAMESPACE and not prefix and local_name(child) == "attribute":
            name = ""  # without a name: refused by the check of events
        else:
            name = prefix + attribute_part(local_name(child))
        if len(child):
            _read_into(found, child, name + ".", types)
        elif child.get(_NIL) not in ("true", "1"):
            value = _value(child.text or "", types.get(name))
            # What is given twice is an array, as in JSON; no attribute is one.
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
