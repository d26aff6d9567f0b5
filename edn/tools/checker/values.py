"""Converts JSON values to comparable ones, by the type of their attribute."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

#: attribute → type of a topic
Attributes = Mapping[str, str]

KINDS = frozenset({"number", "integer", "string", "boolean", "time"})

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


def read(kind: str, value: object) -> Any:
    """Converts a value of an event; raises ValueError if it is not of the type."""
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
    raise ValueError(f"{value!r} is not of type {kind}")


def read_literal(kind: str, value: object) -> Any:
    """Converts a constant of a filter. For an integer, a fraction stays: Python compares the two exactly."""
    if kind == "integer" and isinstance(value, float) and math.isfinite(value):
        return value
    return read(kind, value)


def flatten(event: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns attributes by their dotted names, without nulls and without fields of the network ($…)."""
    flat: dict[str, Any] = {}
    for key, value in event.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        elif value is not None and (prefix or not key.startswith("$")):
            flat[prefix + key] = value
    return flat


def read_event(event: Mapping[str, Any], attributes: Attributes) -> dict[str, Any]:
    """Returns the comparable values of an event; raises ValueError for attributes that its topic lacks."""
    values = {}
    for name, value in flatten(event).items():
        if name not in attributes:
            raise ValueError(f'"{name}" is not an attribute of the topic')
        try:
            values[name] = read(attributes[name], value)
        except ValueError as error:
            raise ValueError(f'attribute "{name}": {error}') from None
    return values
