"""Decodes the events of a request into a batch of points, ready to be logged and routed.

Theory of operation
-------------------
This is the hot path, so compiled code works on whole batches. There are three ways, from fast to slow; each
leaves to the next what it does not know:

1. `edn.protocol.flat_events` reads flat events with declared attributes only, in one pass.
2. Each schema has one `msgspec` struct with one field per attribute. One call decodes the body into a list of
   structs; it skips undeclared fields, and checks their syntax. Another cuts the events out of the body, as
   they were sent (`edn.protocol.documents`), and finds what `msgspec` does not: repeated keys, for example.
   One pass per column fills the matrix of points.
3. `edn.model.event_check` checks event by event. It names the first invalid event, or accepts what the others
   are too strict for (an integer written as 5.0, an escaped key).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from edn.errors import CorruptMessage
from edn.formats.documents import Lines
from edn.formats.ndjson import split
from edn.model.coordinates import DOMAINS, Domain, Key, Value, element_of, instant, is_array, read_base64
from edn.model.event_check import (
    MAX_ELEMENTS,
    MAX_ID,
    CheckedEvent,
    check_events,
    read_availability,
    read_value,
    value_at,
)
from edn.model.rect import MISSING

#: kinds of attributes of a flat event; the strings follow, each with its own number
NUMBER, INTEGER, BOOLEAN = range(3)
#: attributes that a flat event may have
_MOST_FLAT = 64


@dataclass(frozen=True, slots=True)
class FlatLayout:
    """The attributes of flat events, for a compiled pass."""

    #: width of the points, and number of attributes that are strings in JSON
    width: int
    texts: int
    #: the names as written in JSON, one after the other, and where each one ends
    names: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]
    #: kind and column of each attribute
    kinds: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]


class FlatEvents(NamedTuple):
    #: float64 (n, width); strings are missing
    points: npt.NDArray[np.float64]
    #: int64 (n, texts, 2): begin and end of each string in the body; -1 if it is missing
    spans: npt.NDArray[np.int64]
    #: the events as they were sent, one line each
    lines: bytes


#: cuts the events out of a body of valid JSON; None if it cannot tell
CutEvents = Callable[[bytes], Lines | None]
#: reads a body of flat events; None if it cannot tell
ReadFlatEvents = Callable[[bytes, FlatLayout], FlatEvents | None]

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
    "bytes": str,
}
#: types that are strings in JSON and need a conversion to coordinates
_TEXTS = ("string", "time", "bytes")
#: types that are strings in JSON and something else in predicates
_READ: dict[str, Callable[[str], Key]] = {"time": instant, "bytes": read_base64}
_OWN_FIELDS: list[tuple[str, Any, Any]] = [
    ("id_", Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID)] | UnsetType, UNSET),
    ("time_", str | UnsetType, UNSET),
    ("availability_", Annotated[float, msgspec.Meta(ge=0)] | str | UnsetType, UNSET),
]
_OWN_NAMES = {"id_": "$id", "time_": "$time", "availability_": "$availability"}


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events in the order of the request, one row each."""

    #: id given by the publisher, or None
    ids: list[str | None]
    #: time given by the publisher, in microseconds since 1970 UTC, or None
    stamps: list[int | None]
    #: seconds, or `inf`; None is the topic's default
    availabilities: list[float | None]
    #: the events as they were sent, without keys that begin with $, one line per event
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
    #: raises ValueError for an attribute that is given twice
    get: Callable[[Any], Any]
    #: reads the attribute of all events
    column: Callable[[Sequence[Any]], list[Any]]
    coordinates: _Coordinates | None
    #: converts a value, or an element of an array, that predicates do not compare as it is in JSON
    read: Callable[[str], Key] | None


class EventDecoder:
    """Decodes the events of one schema. Building the structs is slow, so each schema has one decoder."""

    def __init__(
        self, attributes: Mapping[str, tuple[int, str]], width: int, *, closed: bool = False
    ) -> None:
        """`attributes`: name → (column, type) of live attributes; `width`: number of columns."""
        self._attributes = dict(attributes)
        self._types = {name: type_ for name, (_, type_) in attributes.items()}
        self._width = width
        self._closed = closed
        tree = _tree(self._types)
        dotted = [name for name in self._types if "." in name]
        accepted = _struct(tree, dotted, own=True, closed=closed)
        self._one = msgspec.json.Decoder(accepted)
        self._many = msgspec.json.Decoder(list[accepted])  # type: ignore[valid-type]  # the struct is made at run time
        self._stored = msgspec.json.Decoder(_struct(tree, dotted))
        texts = sum(type_ in _TEXTS for type_ in self._types.values())
        capacity = max(_MIN_CACHED, _CACHED // max(1, texts))
        self._fields = [
            _Field(
                name,
                type_,
                place,
                *_getters(tree, name, dotted),
                _Coordinates(DOMAINS[type_], capacity) if type_ in _TEXTS else None,
                _READ.get(element_of(type_)),
            )
            for name, (place, type_) in attributes.items()
        ]
        self._flat = _flat_layout(self._attributes, width)
        self._flat_texts = [
            (field.place, field.coordinates) for field in self._fields if field.coordinates is not None
        ]

    def decode(
        self, body: bytes, cut: CutEvents | None = None, read_flat: ReadFlatEvents | None = None
    ) -> EventBatch:
        """Decodes every event of the body; raises `InvalidEvent`, `MalformedJson` or `TooLarge`."""
        if read_flat is not None and self._flat is not None:
            flat = read_flat(body, self._flat)
            if flat is not None:
                batch = self._flat_batch(body, flat)
                if batch is not None:
                    return batch
        if cut is not None:
            try:
                alone = body.lstrip()[:1] == b"{"
                events = [self._one.decode(body)] if alone else self._many.decode(body)
                batch = self._batch(body, events, cut)
            except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
                batch = None
            if batch is not None:
                return batch
        return self._checked_batch(*check_events(body, self._types, closed=self._closed))

    def values(self, body: bytes, point: Sequence[float] | None = None) -> dict[str, Value]:
        """Reads a stored body for predicates. A value that does not fit the current type is missing."""
        fields = self._fields
        if point is not None and (MISSING in point or len(point) < self._width):
            width = len(point)
            fields = [one for one in fields if one.place < width and point[one.place] != MISSING]
        try:
            event = self._stored.decode(body)
            found: dict[str, Value] = {}
            for field in fields:
                value = field.get(event)
                if value is not None and value is not UNSET:
                    if field.read is not None:
                        value = tuple(map(field.read, value)) if type(value) is list else field.read(value)
                    elif type(value) is list:
                        value = tuple(value)
                    found[field.name] = value
            return found
        except (msgspec.ValidationError, ValueError):
            return _fitting_values(body, fields)

    def _flat_batch(self, body: bytes, flat: FlatEvents) -> EventBatch | None:
        """Adds the coordinates of strings; None if one of them is not a valid time."""
        count = len(flat.points)
        if self._flat_texts:
            text = body.decode("ascii")
            try:
                for number, (place, coordinates) in enumerate(self._flat_texts):
                    flat.points[:, place] = [
                        coordinates[text[begin:end]] if begin >= 0 else MISSING
                        for begin, end in flat.spans[:, number].tolist()
                    ]
            except ValueError:
                return None
        return EventBatch([None] * count, [None] * count, [None] * count, flat.lines, flat.points)

    def _batch(self, body: bytes, events: Sequence[Any], cut: CutEvents) -> EventBatch | None:
        """Builds the batch; None if the fast path cannot tell whether the body is valid."""
        count = len(events)
        found = cut(body)
        if found is None:
            return None
        ids: list[Any] = [None] * count
        stamps: list[Any] = [None] * count
        availabilities: list[Any] = [None] * count
        if found.own and _extract_own(events, ids, stamps, availabilities) != found.own:
            return None  # a key that begins with $ and is not one of ours
        return EventBatch(ids, stamps, availabilities, found.text, self._points(events))

    def _points(self, events: Sequence[Any]) -> npt.NDArray[np.float64]:
        points = np.full((len(events), self._width), MISSING)
        if not events:
            return points
        for field in self._fields:
            given = field.column(events)
            if is_array(field.type):
                points[:, field.place] = list(map(_presence(field.type), given))
                continue
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

    def _checked_batch(self, events: Sequence[CheckedEvent], lines: bytes) -> EventBatch:
        points = np.full((len(events), self._width), MISSING)
        for row, event in enumerate(events):
            for name, value in event.values.items():
                place, type_ = self._attributes[name]
                points[row, place] = DOMAINS[type_].coordinate(value)
        return EventBatch(
            ids=[event.id for event in events],
            stamps=[event.stamp for event in events],
            availabilities=[event.availability for event in events],
            lines=lines,
            points=points,
        )


def _fitting_values(body: bytes, fields: Iterable[_Field]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    try:
        event = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptMessage(f"the body of an event must be a JSON object: {error}") from None
    for field in fields:
        try:
            value = value_at(event, field.name)
            if value is not None:
                found[field.name] = read_value(field.type, value)
        except ValueError:
            continue
    return found


def _presence(type_: str) -> Callable[[Any], float]:
    """Returns the map from an array, null or nothing to its coordinate."""
    check = _READ.get(element_of(type_))

    def coordinate(given: Any) -> float:
        if given is None or given is UNSET:
            return MISSING
        if check is not None:
            for element in given:
                check(element)
        return 0.0

    return coordinate


def _flat_layout(attributes: Mapping[str, tuple[int, str]], width: int) -> FlatLayout | None:
    """Describes flat events; None if their attributes can be nested, arrays, bytes or too many."""
    kinds: dict[str, int] = {"number": NUMBER, "integer": INTEGER, "boolean": BOOLEAN}
    found: list[int] = []
    texts = 0
    for name, (_, type_) in attributes.items():
        if "." in name or not (name.isascii() and name.isprintable()) or '"' in name or "\\" in name:
            return None
        if type_ in ("string", "time"):
            texts += 1
            found.append(BOOLEAN + texts)
        elif type_ in kinds:
            found.append(kinds[type_])
        else:
            return None
    if not 0 < len(found) <= _MOST_FLAT:
        return None
    names = [name.encode() for name in attributes]
    return FlatLayout(
        width,
        texts,
        np.frombuffer(bytearray(b"".join(names)), dtype=np.uint8),
        np.cumsum([len(name) for name in names], dtype=np.int64),
        np.array(found, dtype=np.int64),
        np.array([place for place, _ in attributes.values()], dtype=np.int64),
    )


def _extract_own(events: Sequence[Any], ids: list[Any], stamps: list[Any], availabilities: list[Any]) -> int:
    """Copies the values of our own keys into the lists; returns how many there are."""
    found = 0
    for place, event in enumerate(events):
        if event.id_ is not UNSET:
            found += 1
            ids[place] = event.id_
        if event.time_ is not UNSET:
            found += 1
            stamps[place] = instant(event.time_)
        if event.availability_ is not UNSET:
            found += 1
            given = event.availability_
            availabilities[place] = read_availability(given) if isinstance(given, str) else given + 0.0
    return found


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


def _struct(
    tree: _Tree, dotted: Sequence[str] = (), *, own: bool = False, closed: bool = False
) -> type[msgspec.Struct]:
    """Builds the struct of an event or of a nested object. Fields are numbered, as any name is valid.

    `dotted`: names that may also be keys. `own`: whether there are keys that begin with $.
    """
    fields = list(_OWN_FIELDS) if own else []
    names = dict(_OWN_NAMES) if own else {}
    for number, (part, below) in enumerate(tree.items()):
        type_ = _json_type(below) if isinstance(below, str) else _struct(below, closed=closed)
        fields.append((f"f{number}", type_ | None | UnsetType, UNSET))
        names[f"f{number}"] = part
    for number, name in enumerate(dotted):
        type_ = _json_type(_leaf(tree, name))
        fields.append((f"d{number}", type_ | None | UnsetType, UNSET))
        names[f"d{number}"] = name
    return msgspec.defstruct("Event", fields, rename=names, forbid_unknown_fields=closed, gc=False)


def _json_type(type_: str) -> Any:
    if not is_array(type_):
        return _JSON_TYPES[type_]
    elements: Any = _JSON_TYPES[element_of(type_)]
    return Annotated[list.__class_getitem__(elements), msgspec.Meta(max_length=MAX_ELEMENTS)]


def _leaf(tree: _Tree, name: str) -> str:
    node: Any = tree
    for part in name.split("."):
        node = node[part]
    return str(node)


def _getters(
    tree: _Tree, name: str, dotted: Sequence[str]
) -> tuple[Callable[[Any], Any], Callable[[Sequence[Any]], list[Any]]]:
    """Returns functions that read an attribute, nested or under its dotted name, of one event and of many.

    It is absent if its parent object is absent or null.
    """
    path: list[str] = []
    node: Any = tree
    for part in name.split("."):
        path.append(f"f{list(node).index(part)}")
        node = node[part]
    if len(path) == 1:
        flat = attrgetter(path[0])
        return flat, lambda events: list(map(flat, events))
    *parents, leaf = path
    direct_path = attrgetter(".".join(path))
    alias = attrgetter(f"d{dotted.index(name)}")

    def get(event: Any) -> Any:
        direct = alias(event)
        for parent in parents:
            event = getattr(event, parent)
            if event is None or event is UNSET:
                return direct
        nested = getattr(event, leaf)
        if nested is None or nested is UNSET:
            return direct
        if direct is not None and direct is not UNSET:
            raise ValueError("the attribute is given twice")
        return nested

    def column(events: Sequence[Any]) -> list[Any]:
        # Usually every event has the parents, and none a dotted key; `attrgetter` is several times as fast.
        if list(map(alias, events)).count(UNSET) == len(events):
            try:
                return list(map(direct_path, events))
            except AttributeError:
                pass  # a parent is absent or null
        return list(map(get, events))

    return get, column
