"""Converts JSON values to comparable ones, by the type of their attribute."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

#: the type of an attribute: its name, or a list with the type of the elements of an array
AttributeType = str | list[str]
#: attribute → type of a topic
Attributes = Mapping[str, AttributeType]

KINDS = frozenset({"number", "integer", "string", "boolean", "time", "bytes"})

_ARRAYS = [[kind] for kind in sorted(KINDS)]

_TIME = re.compile(
    r"(?P<minute>\d{4}-\d\d-\d\d[Tt]\d\d:\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d+))?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<hours>\d\d):(?P<minutes>\d\d))",
    re.ASCII,
)
_DURATION = re.compile(
    r"P(?=.)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(text: str) -> int:
    """Converts an RFC 3339 time to microseconds since 1970; drops finer digits, second 60 is the next 0."""
    found = _TIME.fullmatch(text)
    if found is None or int(found["second"]) > 60:
        raise ValueError(f"{text!r} is not an RFC 3339 time with an offset")
    minute = datetime.fromisoformat(found["minute"].upper()).replace(tzinfo=UTC)
    total = (minute - _ORIGIN) // _MICROSECOND + int(found["second"]) * 1_000_000
    total += int((found["fraction"] or "")[:6].ljust(6, "0"))
    if found["sign"]:
        east = (int(found["hours"]) * 60 + int(found["minutes"])) * 60_000_000
        total += -east if found["sign"] == "+" else east
    return total


def duration(text: str) -> int | None:
    """Converts an ISO 8601 duration to nanoseconds; None for another text."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    parts = {name: float(amount) for name, amount in found.groupdict(default="0").items()}
    try:
        return timedelta(**parts) // _MICROSECOND * 1000
    except OverflowError:
        raise ValueError(f"{text[:60]!r} is longer than any recording") from None


def is_kind(kind: object) -> bool:
    """Tells whether an attribute may have this type."""
    return kind in KINDS if isinstance(kind, str) else isinstance(kind, list) and kind in _ARRAYS


def read(kind: AttributeType, value: object) -> Any:
    """Converts a value of an event, an array to a tuple; raises ValueError if it is not of the type."""
    if isinstance(kind, list):
        if not isinstance(value, list):
            raise ValueError(f"{value!r} is not an array")
        return tuple(read(kind[0], element) for element in value)
    if kind in ("number", "integer") and isinstance(value, int | float) and not isinstance(value, bool):
        if kind == "number":
            try:
                return float(value)
            except OverflowError:
                raise ValueError("a number is beyond the range of a double") from None
        if isinstance(value, int) or value.is_integer():
            return int(value)
    elif (kind == "string" and isinstance(value, str)) or (kind == "boolean" and isinstance(value, bool)):
        return value
    elif kind == "time" and isinstance(value, str):
        return microseconds(value)
    elif kind == "bytes" and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise ValueError(f"{value!r} is not of type {kind}")


def read_literal(kind: str, value: object) -> Any:
    """Converts a constant of a filter. For an integer, a fraction stays: Python compares the two exactly."""
    if kind == "integer" and isinstance(value, float) and math.isfinite(value):
        return value
    return read(kind, value)


def fields_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an event without the fields of the network ($…)."""
    return {key: value for key, value in event.items() if not key.startswith("$")}


def is_same(one: Any, other: Any) -> bool:
    """Tells whether two JSON values are equal. A boolean is no number, other than in Python."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def read_event(event: Mapping[str, Any], attributes: Attributes, *, closed: bool = False) -> dict[str, Any]:
    """Returns the comparable values of an event's attributes.

    Raises ValueError for a value of another type, and in a closed topic for a field that it does not declare.
    """
    values = {}
    for name, kind in attributes.items():
        try:
            given = _given(event, name)
            if given is not None:
                values[name] = read(kind, given)
        except ValueError as error:
            raise ValueError(f'attribute "{name}": {error}') from None
    if closed:
        for name in _leaves(fields_of(event), attributes):
            if name not in attributes:
                raise ValueError(f'"{name}" is not an attribute of the topic')
    return values


def _given(event: Mapping[str, Any], name: str) -> Any:
    """Returns the value at a path of nested objects or under the dotted name; None if it is missing."""
    place: Any = event
    for part in name.split("."):
        if place is None:
            break
        if not isinstance(place, Mapping):
            raise ValueError(f"{place!r} is not an object")
        place = place.get(part)
    if "." in name and event.get(name) is not None:
        if place is not None:
            raise ValueError("it is given twice")
        return event[name]
    return place


def _leaves(event: Mapping[str, Any], attributes: Attributes, prefix: str = "") -> list[str]:
    """Lists the dotted names of all fields that are no parents of attributes."""
    found: list[str] = []
    for key, value in event.items():
        name = prefix + key
        if any(known.startswith(name + ".") for known in attributes):
            found += _leaves(value or {}, attributes, name + ".")
        else:
            found.append(name)
    return found
