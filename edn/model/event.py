"""Decodes the events of a request into a batch of points, ready to be logged and routed.

Theory of operation
-------------------
This is the hot path, so C code works on whole batches. Each schema has one `msgspec` struct with one field
per attribute. One call decodes the body into a list of structs, another encodes them into the stored bodies,
and one pass per column fills the matrix of points. `msgspec` accepts repeated keys; they show as a surplus of
colons in the body (see `edn.formats.strict_json`).

A body that this path rejects goes to `edn.model.event_check`, which checks event by event. It names the first
invalid event, or accepts what the struct is too strict for (a dotted key, an integer written as 5.0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from edn.errors import CorruptMessage
from edn.formats.ndjson import split
from edn.formats.strict_json import check_keys, escapes_a_colon
from edn.model.coordinates import DOMAINS, Domain, Key, instant
from edn.model.event_check import MAX_ID, CheckedEvent, check_events, flatten
from edn.model.rect import MISSING

#: cached coordinates of strings and times, divided among the columns
_CACHED = 65_536
#: minimum per column
_MIN_CACHED = 1_024
#: characters of a string worth caching
_CACHED_LENGTH = 64

_JSON_TYPES: dict[str, Any] = {
    "number": float,
    "integer": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "string": str,
    "boolean": bool,
    "time": str,
}
#: types that are strings in JSON and need a conversion to coordinates
_TEXTS = ("string", "time")
_OWN_FIELDS: list[tuple[str, Any, Any]] = [
    ("id_", Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID)] | UnsetType, UNSET),
    ("time_", str | UnsetType, UNSET),
    ("availability_", Annotated[float, msgspec.Meta(ge=0)] | Literal["forever"] | UnsetType, UNSET),
]
_OWN_NAMES = {"id_": "$id", "time_": "$time", "availability_": "$availability"}

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events in the order of the request, one row each."""

    #: id given by the publisher, or None
    ids: list[str | None]
    #: time given by the publisher, in microseconds since 1970 UTC, or None
    stamps: list[int | None]
    #: seconds, or `inf`; None is the topic's default
    availabilities: list[float | None]
    #: attributes as JSON, without keys that begin with $, one line per event
    lines: bytes
    #: float64 (n, width of the schema)
    points: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.points)

    @property
    def bodies(self) -> list[bytes]:
        return split(self.lines)


class _Coordinates(dict[Any, float]):
    """A cache of coordinates. It includes missing values, so that one `map` converts a column."""

    def __init__(self, domain: Domain, capacity: int) -> None:
        super().__init__({None: MISSING, UNSET: MISSING})
        self._domain = domain
        self._capacity = capacity

    def __missing__(self, text: str) -> float:
        coordinate = self._domain.coordinate(self._domain.key(text))
        if len(text) <= _CACHED_LENGTH:
            if len(self) >= self._capacity:
                self.clear()
                self.update({None: MISSING, UNSET: MISSING})
            self[text] = coordinate
        return coordinate


@dataclass(frozen=True, slots=True)
class _Field:
    """The position of an attribute in the struct and in the matrix."""

    name: str
    type: str
    place: int
    get: Callable[[Any], Any]
    coordinates: _Coordinates | None


class EventDecoder:
    """Decodes the events of one schema. Building the structs is slow, so each schema has one decoder."""

    def __init__(self, attributes: Mapping[str, tuple[int, str]], width: int) -> None:
        """`attributes`: name → (column, type) of live attributes; `width`: number of columns."""
        self._attributes = dict(attributes)
        self._types = {name: type_ for name, (_, type_) in attributes.items()}
        self._width = width
        tree = _tree(self._types)
        strict = _struct(tree, strict=True)
        self._one = msgspec.json.Decoder(strict)
        self._many = msgspec.json.Decoder(list[strict])  # type: ignore[valid-type]  # the struct is made at run time
        self._stored = msgspec.json.Decoder(_struct(tree, strict=False))
        texts = sum(type_ in _TEXTS for type_ in self._types.values())
        capacity = max(_MIN_CACHED, _CACHED // max(1, texts))
        self._fields = [
            _Field(
                name,
                type_,
                place,
                _getter(tree, name),
                _Coordinates(DOMAINS[type_], capacity) if type_ in _TEXTS else None,
            )
            for name, (place, type_) in attributes.items()
        ]
        # If all attributes are numbers: one getter for all values of an event, in column order.
        flat = [f"f{number}" for number in range(len(tree))]
        numbers = all(type_ in ("number", "integer") for type_ in tree.values())
        ordered = [attributes[name][0] for name in tree if name in attributes] == list(range(width))
        self._numbers: Callable[[Any], tuple[float, ...]] | None = (
            attrgetter(*flat) if numbers and ordered and width > 1 else None
        )

    def decode(self, body: bytes) -> EventBatch:
        """Decodes every event of the body; raises `InvalidEvent`, `MalformedJson` or `TooLarge`."""
        try:
            alone = body.lstrip()[:1] == b"{"
            events = [self._one.decode(body)] if alone else self._many.decode(body)
            return self._batch(body, events)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
            return self._checked_batch(check_events(body, self._types))

    def values(self, body: bytes) -> dict[str, Key]:
        """Reads a stored body for predicates. A value that does not fit the current type is missing."""
        try:
            event = self._stored.decode(body)
            found: dict[str, Key] = {}
            for field in self._fields:
                value = field.get(event)
                if value is not None and value is not UNSET:
                    found[field.name] = instant(value) if field.type == "time" else value
            return found
        except (msgspec.ValidationError, ValueError):
            return self._fitting_values(body)

    def _batch(self, body: bytes, events: Sequence[Any]) -> EventBatch:
        count = len(events)
        ids: list[Any] = [None] * count
        stamps: list[Any] = [None] * count
        availabilities: list[Any] = [None] * count
        colons = 0
        dense = self._dense(events)
        # Most bodies contain neither $ nor an escape, so no key begins with $.
        if b"$" in body or b"\\" in body:
            colons = _extract_own(events, ids, stamps, availabilities)
        elif dense is not None and _colons(body) == dense.size:
            # Numbers only, each attribute once: usually the body contains the lines already.
            lines = _lines_of(body, count)
            if lines is not None:
                return EventBatch(ids, stamps, availabilities, lines, dense)
        lines = _encoder.encode_lines(events)
        if _colons(body) != colons + _colons(lines) or escapes_a_colon(body):
            check_keys(body)
        points = self._points(events) if dense is None else dense
        return EventBatch(ids, stamps, availabilities, lines, points)

    def _dense(self, events: Sequence[Any]) -> npt.NDArray[np.float64] | None:
        """Builds all points at once if every attribute is a number and present; otherwise returns None."""
        if self._numbers is None or not events:
            return None
        try:
            values = chain.from_iterable(map(self._numbers, events))
            dense = np.fromiter(values, np.float64, len(events) * self._width)
        except TypeError:
            return None  # a value is absent or null
        dense += 0.0  # turns -0.0 into 0.0
        return dense.reshape(len(events), self._width)

    def _points(self, events: Sequence[Any]) -> npt.NDArray[np.float64]:
        points = np.full((len(events), self._width), MISSING)
        if not events:
            return points
        for field in self._fields:
            given = list(map(field.get, events))
            if field.coordinates is not None:
                points[:, field.place] = list(map(field.coordinates.__getitem__, given))
                continue
            try:
                column = np.array(given, dtype=np.float64)
            except TypeError:  # a value is absent; null becomes NaN by itself
                column = np.array([None if value is UNSET else value for value in given], dtype=np.float64)
            column += 0.0  # turns -0.0 into 0.0
            column[np.isnan(column)] = MISSING
            points[:, field.place] = column
        return points

    def _checked_batch(self, events: Sequence[CheckedEvent]) -> EventBatch:
        points = np.full((len(events), self._width), MISSING)
        for row, event in enumerate(events):
            for name, key in event.keys.items():
                place, type_ = self._attributes[name]
                points[row, place] = DOMAINS[type_].coordinate(key)
        return EventBatch(
            ids=[event.id for event in events],
            stamps=[event.stamp for event in events],
            availabilities=[event.availability for event in events],
            lines=_encoder.encode_lines([event.attributes for event in events]),
            points=points,
        )

    def _fitting_values(self, body: bytes) -> dict[str, Key]:
        found: dict[str, Key] = {}
        try:
            event = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptMessage(f"the body of an event must be a JSON object: {error}") from None
        for name, value in flatten(event):
            type_ = self._types.get(name)
            if type_ is not None and value is not None:
                try:
                    found[name] = DOMAINS[type_].key(value)
                except ValueError:
                    continue
        return found


def _lines_of(body: bytes, count: int) -> bytes | None:
    """Splits a compact body without braces in strings into one line per event; None if it is not compact."""
    if b"\n" in body or b"\r" in body:  # event streams treat both as line ends
        return None
    if count == 1 and body[:1] == b"{" and body[-1:] == b"}":
        return body + b"\n"
    if body[:2] != b"[{" or body[-2:] != b"}]" or body.count(b"},{") != count - 1:
        return None
    return body[1:-1].replace(b"},{", b"}\n{") + b"\n"


def _colons(text: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == ord(":")))


def _extract_own(events: Sequence[Any], ids: list[Any], stamps: list[Any], availabilities: list[Any]) -> int:
    """Moves the $ keys from the events into the lists; returns the number of their colons in the body."""
    colons = 0
    for place, event in enumerate(events):
        for own in (event.id_, event.time_, event.availability_):
            if own is not UNSET:
                colons += 1 + (own.count(":") if isinstance(own, str) else 0)
        if event.id_ is not UNSET:
            ids[place] = event.id_
        if event.time_ is not UNSET:
            stamps[place] = instant(event.time_)
        if event.availability_ is not UNSET:
            given = event.availability_
            availabilities[place] = math.inf if isinstance(given, str) else given + 0.0
        event.id_ = event.time_ = event.availability_ = UNSET
    return colons


#: part of a name → the type, or the parts below it
_Tree = dict[str, Any]


def _tree(types: Mapping[str, str]) -> _Tree:
    tree: _Tree = {}
    for name, type_ in types.items():
        *parents, leaf = name.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = type_
    return tree


def _struct(tree: _Tree, *, strict: bool, own: bool = True) -> type[msgspec.Struct]:
    """Builds the struct of an event or of a nested object. Fields are numbered, as any name is valid."""
    fields = list(_OWN_FIELDS) if strict and own else []
    names = dict(_OWN_NAMES) if strict and own else {}
    for number, (part, below) in enumerate(tree.items()):
        type_ = _JSON_TYPES[below] if isinstance(below, str) else _struct(below, strict=strict, own=False)
        fields.append((f"f{number}", type_ | None | UnsetType, UNSET))
        names[f"f{number}"] = part
    return msgspec.defstruct("Event", fields, rename=names, forbid_unknown_fields=strict, gc=False)


def _getter(tree: _Tree, name: str) -> Callable[[Any], Any]:
    """Returns a function that reads an attribute; it is absent if its parent object is absent or null."""
    path: list[str] = []
    node: Any = tree
    for part in name.split("."):
        path.append(f"f{list(node).index(part)}")
        node = node[part]
    if len(path) == 1:
        return attrgetter(path[0])
    *parents, leaf = path

    def get(event: Any) -> Any:
        for parent in parents:
            event = getattr(event, parent)
            if event is None or event is UNSET:
                return UNSET
        return getattr(event, leaf)

    return get
