"""Checks events one at a time, with a message for every rule.

`edn.model.event` calls it for bodies that its fast path rejects. An error names the first invalid event and
the place in it. Valid events are returned, so that both paths accept the same language.

A declared attribute is read along the parts of its name (`a.b` is in the object `a`), or under the dotted
name as a key of the event. All other fields are left as they are; in a closed topic they are errors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edn.errors import InvalidEvent, MalformedJson
from edn.formats import duration
from edn.formats.documents import cut_events
from edn.formats.strict_json import check_range, decode, token
from edn.model.coordinates import DOMAINS, Number, Time, Value, element_of, is_array
from edn.model.messages import describe, name_list, quote, unknown_attribute

#: characters of an event's id
MAX_ID = 256
#: elements of a declared array, which filters may look at one by one
MAX_ELEMENTS = 1_000

_MANY_DIGITS = re.compile(rb"[0-9]{300}")

OWN_KEYS = ("$id", "$time", "$availability")


@dataclass(frozen=True, slots=True)
class CheckedEvent:
    id: str | None
    stamp: int | None
    availability: float | None
    #: name → value that predicates compare, without missing ones
    values: dict[str, Value]


def read_availability(text: str) -> float:
    """Reads an availability that is written as text: a duration, or for ever. Raises ValueError."""
    if text == "forever":
        return math.inf
    found = duration.microseconds(text)
    if found is None:
        raise ValueError("not a duration")
    return found / 1e6


def check_events(
    body: bytes, types: Mapping[str, str], *, closed: bool = False
) -> tuple[list[CheckedEvent], bytes]:
    """Checks the events of a body against live attributes; returns them and their lines.

    Raises the first error.
    """
    try:
        given = decode(body)
        if _MANY_DIGITS.search(body):  # integers of any length are decoded
            check_range(body)
    except MalformedJson as error:
        if error.pointer is None:
            raise
        first = error.pointer.split("/")[1:2]  # valid JSON, but with a number out of range
        index = int(first[0]) if first and body.lstrip().startswith(b"[") else 0
        raise InvalidEvent(error.detail, index=index, pointer=error.pointer) from None
    if not isinstance(given, dict | list):
        raise InvalidEvent(
            f"an event must be an object and a batch an array of events, got {describe(given)}",
            index=0,
            pointer="",
        )
    # Computed once per batch.
    parents = frozenset(name[:dot] for name in types for dot, letter in enumerate(name) if letter == ".")
    alone = isinstance(given, dict)
    events = [
        _Reader(types, parents, index, "" if alone else f"/{index}", closed=closed).read(event)
        for index, event in enumerate([given] if alone else given)
    ]
    return events, cut_events(body).text


def value_at(event: Mapping[str, Any], name: str) -> Any:
    """Returns the value of an attribute in a decoded event; None if it is missing.

    Raises ValueError if the path leads through something that is not an object, or the value is given twice.
    """
    place: Any = event
    for part in name.split("."):
        if not isinstance(place, dict):
            if place is None:
                break
            raise ValueError("a parent is not an object")
        place = place.get(part)
    direct = event.get(name) if "." in name else None
    if place is not None and direct is not None:
        raise ValueError("the attribute is given twice")
    return direct if place is None else place


def read_value(type_: str, given: object) -> Value:
    """Converts a value of an event into what predicates compare; raises ValueError."""
    if not is_array(type_):
        return DOMAINS[type_].key(given)
    if not isinstance(given, list):
        raise ValueError(f"got {describe(given)}")
    element = DOMAINS[element_of(type_)]
    return tuple([element.key(one) for one in given])


class _Reader:
    def __init__(
        self, types: Mapping[str, str], parents: frozenset[str], index: int, pointer: str, *, closed: bool
    ) -> None:
        self._types = types
        self._parents = parents
        self._index = index
        self._pointer = pointer
        self._closed = closed
        self._values: dict[str, Value] = {}

    def read(self, event: object) -> CheckedEvent:
        if not isinstance(event, dict):
            raise self._wrong(f"an event must be a JSON object, got {describe(event)}", self._pointer)
        for key in event:
            if key.startswith("$") and key not in OWN_KEYS:
                raise self._wrong(
                    f"a key that begins with $ must be {', '.join(OWN_KEYS[:-1])} or {OWN_KEYS[-1]}, "
                    f"got {quote(key)}",
                    f"{self._pointer}/{token(key)}",
                )
        id_ = self._id(event["$id"]) if "$id" in event else None
        stamp = self._stamp(event["$time"]) if "$time" in event else None
        availability = self._availability(event["$availability"]) if "$availability" in event else None
        self._object(
            {key: value for key, value in event.items() if not key.startswith("$")}, "", self._pointer
        )
        return CheckedEvent(id_, stamp, availability, self._values)

    def _object(self, given: dict[str, Any], prefix: str, pointer: str) -> None:
        for key, value in given.items():
            name = prefix + key
            place = f"{pointer}/{token(key)}"
            # Inside an object a dotted key is a field like any other.
            is_path = not prefix or "." not in key
            if is_path and name in self._types:
                self._attribute(name, value, place)
            elif "." not in key and name in self._parents:
                if isinstance(value, dict):
                    self._object(value, name + ".", place)
                elif value is not None:
                    inside = [known for known in self._types if known.startswith(name + ".")]
                    raise self._wrong(
                        f'"{name}" must be an object with {name_list(inside)}, got {describe(value)}', place
                    )
            elif self._closed:
                raise self._wrong(unknown_attribute(name, list(self._types)), place)

    def _attribute(self, name: str, value: Any, place: str) -> None:
        if value is None:
            return
        if name in self._values:
            raise self._wrong(f'attribute "{name}" is given twice, nested and with its dotted name', place)
        type_ = self._types[name]
        if is_array(type_) and isinstance(value, list):
            self._values[name] = self._array(name, element_of(type_), value, place)
            return
        try:
            self._values[name] = DOMAINS[type_].key(value)
        except ValueError as error:
            raise self._wrong(f'attribute "{name}" must be {DOMAINS[type_].noun}, {error}', place) from None

    def _array(self, name: str, type_: str, given: list[Any], place: str) -> Value:
        if len(given) > MAX_ELEMENTS:
            raise self._wrong(
                f'attribute "{name}" must have at most {MAX_ELEMENTS} elements, got {len(given)}', place
            )
        element = DOMAINS[type_]
        values = []
        for index, one in enumerate(given):
            try:
                values.append(element.key(one))
            except ValueError as error:
                raise self._wrong(
                    f'each element of attribute "{name}" must be {element.noun}, {error}', f"{place}/{index}"
                ) from None
        return tuple(values)

    def _id(self, given: object) -> str:
        if not isinstance(given, str) or not 1 <= len(given) <= MAX_ID:
            raise self._wrong(
                f"$id must be a string of 1 to {MAX_ID} characters, got "
                + (f"{len(given)} characters" if isinstance(given, str) else describe(given)),
                f"{self._pointer}/$id",
            )
        return given

    def _stamp(self, given: object) -> int:
        try:
            return Time().key(given)
        except ValueError as error:
            raise self._wrong(f"$time must be a time, {error}", f"{self._pointer}/$time") from None

    def _availability(self, given: object) -> float:
        try:
            seconds = read_availability(given) if isinstance(given, str) else Number().key(given)
        except ValueError:
            seconds = -1.0
        if seconds >= 0:
            return seconds
        raise self._wrong(
            f'$availability must be a number of seconds, at least 0, {duration.EXAMPLES}, or "forever", '
            f"got {describe(given)}",
            f"{self._pointer}/$availability",
        )

    def _wrong(self, detail: str, pointer: str) -> InvalidEvent:
        return InvalidEvent(detail, index=self._index, pointer=pointer)
