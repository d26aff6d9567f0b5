"""Reads JSON values as what they are compared as, by the type of their attribute."""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Mapping
from typing import Any

#: the name of a type, or a list with the type of an array's elements
Type = str | list[str]
#: attribute name → type
Schema = Mapping[str, Type]
#: attribute name → comparable value; what is missing has no key
Values = dict[str, Any]

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


def microseconds(text: str) -> int:
    """An RFC 3339 time as microseconds since 1970 UTC; digits beyond the sixth are cut off."""
    parts = _RFC3339.fullmatch(text)
    if parts is None:
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    year, month, day, hour, minute, second = (int(part) for part in parts.group(1, 2, 3, 4, 5, 6))
    leap = second == 60
    written = datetime.datetime(year, month, day, hour, minute, 59 if leap else second)
    total = (written - _EPOCH) // _MICROSECOND + (1_000_000 if leap else 0)
    total += int(((parts.group(7) or "") + "000000")[:6])
    if parts.group(8) is None:
        offset = int(parts.group(10)) * 60 + int(parts.group(11))
        total += (-offset if parts.group(9) == "+" else offset) * 60_000_000
    return total


def read(kind: Type, literal: Any) -> Any:
    """The comparable value of a JSON literal for an attribute of this type; of an array, a tuple."""
    if isinstance(kind, list):
        [element] = kind
        if type(literal) is not list:
            raise ValueError(f"{literal!r} is no array")
        return tuple([read(element, one) for one in literal])
    is_number = isinstance(literal, int | float) and not isinstance(literal, bool)
    if kind == "number" and is_number:
        value = float(literal)
        if value - value != 0:
            raise ValueError(f"not a finite number: {literal!r}")
        return value
    if kind == "integer" and is_number and literal == int(literal) and -(2**63) <= literal < 2**63:
        return int(literal)
    if kind == "string" and isinstance(literal, str):
        return literal
    if kind == "boolean" and isinstance(literal, bool):
        return literal
    if kind == "time" and isinstance(literal, str):
        return microseconds(literal)
    if kind == "bytes" and isinstance(literal, str):
        return base64.b64decode(literal, validate=True)
    raise ValueError(f"{literal!r} is no {kind}")


def flatten(event: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """What an event has for each attribute: nested along the parts of its name, or under the dotted name.

    Null, also on the way, is missing. All other fields are not looked at.
    """
    flat: dict[str, Any] = {}
    for name in schema:
        first, *rest = name.split(".")
        value = event.get(first)
        for part in rest:
            if value is not None and not isinstance(value, dict):
                raise ValueError(f"{name}: {value!r} is no object")
            value = None if value is None else value.get(part)
        if rest and event.get(name) is not None:
            if value is not None:
                raise ValueError(f"{name} is given twice")
            value = event[name]
        if value is not None:
            flat[name] = value
    return flat


def read_event(event: Mapping[str, Any], schema: Schema) -> Values:
    return {name: read(schema[name], literal) for name, literal in flatten(event, schema).items()}
