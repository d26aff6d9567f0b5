"""The careful reader of events: one event at a time, every rule of the language by name.

`edn.model.event` comes here when its fast way refuses a body. What is wrong is said with the index of the
first offending event and a pointer to the place; what is right after all is returned, so that the two ways
accept one language.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edn.errors import InvalidEvent, MalformedJson
from edn.formats.strict_json import decode, token
from edn.model.coordinates import DOMAINS, Key, instant
from edn.model.wording import listed, meant, quoted, shown

#: characters of an event's id
MAX_ID = 256

OWN_KEYS = ("$id", "$time", "$availability")


@dataclass(frozen=True, slots=True)
class CheckedEvent:
    id: str | None
    stamp: int | None
    availability: float | None
    #: nested, as it is stored
    attributes: dict[str, Any]
    #: flattened: name → what predicates compare
    keys: dict[str, Key]


def check_events(body: bytes, types: Mapping[str, str]) -> list[CheckedEvent]:
    """The events of a body under a schema's live attributes; raises the first thing that is wrong."""
    try:
        given = decode(body)
    except MalformedJson as error:
        if error.pointer is None:
            raise
        first = error.pointer.split("/")[1:2]  # JSON, but a number in it is none that we have
        index = int(first[0]) if first and body.lstrip().startswith(b"[") else 0
        raise InvalidEvent(error.detail, index=index, pointer=error.pointer) from None
    # Every object that may hold attributes: found once, not an event.
    parents = frozenset(name[:dot] for name in types for dot, letter in enumerate(name) if letter == ".")
    if isinstance(given, dict):
        return [_Reader(types, parents, 0, "").read(given)]
    if not isinstance(given, list):
        raise InvalidEvent(
            f"an event is an object, a batch an array of them; got {shown(given)}", index=0, pointer=""
        )
    return [_Reader(types, parents, index, f"/{index}").read(event) for index, event in enumerate(given)]


def flatten(event: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of everything in a stored event that is no object."""
    for key, value in event.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


class _Reader:
    """Reads one event."""

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
            raise self._wrong(f"an event is an object of its attributes; got {shown(event)}", self._pointer)
        for key in event:
            if key.startswith("$") and key not in OWN_KEYS:
                raise self._wrong(
                    f"{quoted(key)} is no key of an event; those that begin with $ are {', '.join(OWN_KEYS)}",
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
                raise self._wrong(f'attribute "{name}" is {domain.noun}; {error}', place) from None
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
                f'"{name}" is an object that holds {listed(inside)}; got {shown(value)}', place
            )
        return self._wrong(
            f"{quoted(name)} is no attribute of this topic; "
            f"{meant(name, self._types)}its attributes are {listed(list(self._types))}",
            place,
        )

    def _id(self, given: object) -> str:
        if not isinstance(given, str) or not 1 <= len(given) <= MAX_ID:
            raise self._wrong(
                f"$id is a string of 1 to {MAX_ID} characters; got "
                + (f"{len(given)} characters" if isinstance(given, str) else shown(given)),
                f"{self._pointer}/$id",
            )
        return given

    def _stamp(self, given: object) -> int:
        try:
            if isinstance(given, str):
                return instant(given)
            problem = "a string is wanted"
        except ValueError as error:
            problem = str(error)
        raise self._wrong(f"$time is a time; got {shown(given)}: {problem}", f"{self._pointer}/$time")

    def _availability(self, given: object) -> float:
        if given == "forever":
            return math.inf
        try:
            if (
                not isinstance(given, bool)
                and isinstance(given, (int, float))
                and 0 <= float(given) < math.inf
            ):
                return float(given) + 0.0
        except OverflowError:
            pass
        raise self._wrong(
            f'$availability is 0, a number of seconds or "forever"; got {shown(given)}',
            f"{self._pointer}/$availability",
        )

    def _wrong(self, detail: str, pointer: str) -> InvalidEvent:
        return InvalidEvent(detail, index=self._index, pointer=pointer)
