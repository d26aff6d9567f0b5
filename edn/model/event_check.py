"""Checks events one at a time, with a message for every rule.

`edn.model.event` calls it for bodies that its fast path rejects. An error names the first invalid event and
the place in it. Valid events are returned, so that both paths accept the same language.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edn.errors import InvalidEvent, MalformedJson
from edn.formats.strict_json import decode, token
from edn.model.coordinates import DOMAINS, Key, Number, Time
from edn.model.messages import describe, name_list, quote, unknown_attribute

#: characters of an event's id
MAX_ID = 256

OWN_KEYS = ("$id", "$time", "$availability")


@dataclass(frozen=True, slots=True)
class CheckedEvent:
    id: str | None
    stamp: int | None
    availability: float | None
    #: nested, as stored
    attributes: dict[str, Any]
    #: name → value that predicates compare
    keys: dict[str, Key]


def check_events(body: bytes, types: Mapping[str, str]) -> list[CheckedEvent]:
    """Checks the events of a body against live attributes; raises the first error."""
    try:
        given = decode(body)
    except MalformedJson as error:
        if error.pointer is None:
            raise
        first = error.pointer.split("/")[1:2]  # valid JSON, but with a number out of range
        index = int(first[0]) if first and body.lstrip().startswith(b"[") else 0
        raise InvalidEvent(error.detail, index=index, pointer=error.pointer) from None
    # Computed once per batch.
    parents = frozenset(name[:dot] for name in types for dot, letter in enumerate(name) if letter == ".")
    if isinstance(given, dict):
        return [_Reader(types, parents, 0, "").read(given)]
    if not isinstance(given, list):
        raise InvalidEvent(
            f"an event must be an object and a batch an array of events, got {describe(given)}",
            index=0,
            pointer="",
        )
    return [_Reader(types, parents, index, f"/{index}").read(event) for index, event in enumerate(given)]


def flatten(event: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted name and value of every attribute in a stored event."""
    for key, value in event.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


class _Reader:
    def __init__(self, types: Mapping[str, str], parents: frozenset[str], index: int, pointer: str) -> None:
        self._types = types
        self._parents = parents
        self._index = index
        self._pointer = pointer
        self._attributes: dict[str, Any] = {}
        self._keys: dict[str, Key] = {}
        self._seen: set[str] = set()

    def read(self, event: object) -> CheckedEvent:
        if not isinstance(event, dict):
            raise self._wrong(
                f"an event must be an object of attributes, got {describe(event)}", self._pointer
            )
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
        return CheckedEvent(id_, stamp, availability, self._attributes, self._keys)

    def _object(self, given: dict[str, Any], prefix: str, pointer: str) -> None:
        for key, value in given.items():
            name = prefix + key
            place = f"{pointer}/{token(key)}"
            if name in self._types:
                self._attribute(name, value, place)
            elif name in self._parents and isinstance(value, dict):
                self._object(value, name + ".", place)
            elif name in self._parents and value is None:
                continue
            else:
                raise self._unknown(name, value, place)

    def _attribute(self, name: str, value: Any, place: str) -> None:
        if name in self._seen:
            raise self._wrong(f'attribute "{name}" is given twice, nested and with its dotted name', place)
        self._seen.add(name)
        stored = value
        if value is not None:
            domain = DOMAINS[self._types[name]]
            try:
                key = domain.key(value)
            except ValueError as error:
                raise self._wrong(f'attribute "{name}" must be {domain.noun}, {error}', place) from None
            self._keys[name] = key
            stored = value if domain.name == "time" else key
        node = self._attributes
        *parents, leaf = name.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = stored

    def _unknown(self, name: str, value: Any, place: str) -> InvalidEvent:
        if name in self._parents:
            inside = [known for known in self._types if known.startswith(name + ".")]
            return self._wrong(
                f'"{name}" must be an object with {name_list(inside)}, got {describe(value)}', place
            )
        return self._wrong(unknown_attribute(name, list(self._types)), place)

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
        if given == "forever":
            return math.inf
        try:
            seconds = Number().key(given)
        except ValueError:
            seconds = -1.0
        if seconds >= 0:
            return seconds
        raise self._wrong(
            f'$availability must be a number of seconds, at least 0, or "forever", got {describe(given)}',
            f"{self._pointer}/$availability",
        )

    def _wrong(self, detail: str, pointer: str) -> InvalidEvent:
        return InvalidEvent(detail, index=self._index, pointer=pointer)
