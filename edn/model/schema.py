"""A topic's schema: its attributes, their types and their columns.

Columns are append-only, so points and rectangles of an earlier schema stay valid under a later one. The
column of a removed attribute is retired; an attribute that returns with another type gets a new column. On
the wire a schema is its (name, type) pairs in column order. A later column retires earlier ones that conflict
with it: columns with the same name, or with a parent's or child's name (`a` and `a.b`).

The type of an array is `["string"]` in the interface and `string[]` inside the network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from edn.errors import InvalidSchema
from edn.formats.strict_json import token
from edn.model.coordinates import ARRAY, DOMAINS, SCALARS, Domain, Value, element_of, is_array
from edn.model.event import CutEvents, EventBatch, EventDecoder, ReadFlatEvents
from edn.model.messages import describe, quote

MAX_ATTRIBUTES = 256
MAX_NAME = 128
#: parts of a dotted name; nested in a batch, they stay within the maximal depth of JSON
MAX_PARTS = 30

_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")

#: a type in the interface: the name of a type, or a list with that of an array's elements
AttributeType = str | list[str]


def public_type(type_: str) -> AttributeType:
    """Writes a type as the interface does: `string[]` as `["string"]`."""
    return [element_of(type_)] if is_array(type_) else type_


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    #: a key of `edn.model.coordinates.DOMAINS`
    type: str
    #: whether no event has the attribute any more
    retired: bool = False

    @property
    def domain(self) -> Domain:
        return DOMAINS[self.type]


@dataclass(frozen=True)  # no slots: `cached_property` needs a `__dict__`
class Schema:
    columns: tuple[Column, ...]
    #: whether events have no fields but the attributes
    closed: bool = False

    @classmethod
    def parse(cls, attributes: object, *, closed: bool = False) -> Schema:
        """Parses a new topic's schema, `{"symbol": "string", …}`; raises `InvalidSchema` with a pointer."""
        return cls(tuple(Column(name, type_) for name, type_ in _checked(attributes).items()), closed)

    @classmethod
    def from_wire(cls, columns: Sequence[Sequence[str]], *, closed: bool = False) -> Schema:
        """Restores a schema from `to_wire`, except that attributes removed without a successor are live."""
        for index, (_, type_) in enumerate(columns):
            if type_ not in DOMAINS:
                raise _unknown_type(f"column {index}", type_)
        live: list[Column] = []
        # Names of later columns and of their ancestors: in linear time, as servers read many schemas.
        later: set[str] = set()
        above: set[str] = set()
        for name, type_ in reversed(columns):
            ancestors = _ancestors(name)
            clashing = name in later or name in above or not later.isdisjoint(ancestors)
            live.append(Column(name, type_, retired=clashing))
            later.add(name)
            above.update(ancestors)
        return cls(tuple(reversed(live)), closed)

    def to_wire(self) -> list[tuple[str, str]]:
        return [(column.name, column.type) for column in self.columns]

    @property
    def width(self) -> int:
        return len(self.columns)

    @cached_property
    def types(self) -> dict[str, str]:
        """Name → type of the live attributes, as inside the network."""
        return {column.name: column.type for column in self.columns if not column.retired}

    @cached_property
    def attributes(self) -> dict[str, AttributeType]:
        """Name → type of the live attributes, as in the interface."""
        return {name: public_type(type_) for name, type_ in self.types.items()}

    def column_of(self, name: str) -> int | None:
        return self._places.get(name)

    def removed(self, attributes: object) -> list[str]:
        """Lists the names that new attributes lack or have with another type."""
        new = _checked(attributes)
        return [name for name, type_ in self.types.items() if new.get(name) != type_]

    def evolve(self, attributes: object) -> Schema:
        """Returns the schema with new attributes; every column keeps its place."""
        new = _checked(attributes)
        columns = [replace(column, retired=True) for column in self.columns]
        for name, type_ in new.items():
            place = self._reusable(name, type_)
            if place is None:
                columns.append(Column(name, type_))
            else:
                columns[place] = Column(name, type_)
        return self if tuple(columns) == self.columns else replace(self, columns=tuple(columns))

    def decode_events(
        self, body: bytes, cut: CutEvents | None = None, read_flat: ReadFlatEvents | None = None
    ) -> EventBatch:
        """Decodes a JSON object or array of events; raises `InvalidEvent`, `MalformedJson` or `TooLarge`.

        For speed: `edn.protocol.documents.cut_events` and `edn.protocol.flat_events.read_flat_events`.
        """
        return self._decoder.decode(body, cut, read_flat)

    def values(self, body: bytes, point: Sequence[float] | None = None) -> dict[str, Value]:
        """Reads the attributes of a stored body as values for predicates, without missing ones.

        `point`: the event's point, which tells what was missing when the event was accepted. A field that
        was declared later may be in the body, but not in the point.
        """
        return self._decoder.values(body, point)

    @cached_property
    def _decoder(self) -> EventDecoder:
        return EventDecoder(
            {name: (place, self.columns[place].type) for name, place in self._places.items()},
            self.width,
            closed=self.closed,
        )

    @cached_property
    def _places(self) -> dict[str, int]:
        return {column.name: place for place, column in enumerate(self.columns) if not column.retired}

    def _reusable(self, name: str, type_: str) -> int | None:
        """Returns the column that an attribute has or may reuse, unless a later column conflicts with it."""
        named, above = self._last
        place = max(above.get(name, -1), *(named.get(one, -1) for one in (name, *_ancestors(name))))
        if place < 0:
            return None
        column = self.columns[place]
        return place if (column.name, column.type) == (name, type_) else None

    @cached_property
    def _last(self) -> tuple[dict[str, int], dict[str, int]]:
        """The last column with each name, and the last one below each name."""
        named: dict[str, int] = {}
        above: dict[str, int] = {}
        for place, column in enumerate(self.columns):
            named[column.name] = place
            above.update(dict.fromkeys(_ancestors(column.name), place))
        return named, above


def _ancestors(name: str) -> list[str]:
    """Lists the parents of a name: a.b.c → a.b, a."""
    found = []
    while (at := name.rfind(".")) >= 0:
        name = name[:at]
        found.append(name)
    return found


def _checked(attributes: object) -> dict[str, str]:
    if not isinstance(attributes, Mapping):
        raise InvalidSchema(
            'attributes must be an object such as {"symbol": "string", "price": "number"}, got '
            + describe(attributes),
            pointer="",
        )
    if not attributes:
        raise InvalidSchema("a schema must have at least one attribute", pointer="")
    if len(attributes) > MAX_ATTRIBUTES:
        raise InvalidSchema(
            f"a schema must have at most {MAX_ATTRIBUTES} attributes, got {len(attributes)}", pointer=""
        )
    checked: dict[str, str] = {}
    for name, type_ in attributes.items():
        _check_name(name)
        checked[name] = _checked_type(name, type_)
    for name in checked:
        for parent in _ancestors(name):
            if parent in checked:
                raise InvalidSchema(
                    f'"{parent}" cannot be both an attribute and the parent of "{name}"',
                    pointer="/" + token(name),
                )
    return checked


#: names of types elsewhere → here
_ELSEWHERE = {
    **dict.fromkeys(("int", "long", "int32", "int64", "bigint"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "real"), "number"),
    **dict.fromkeys(("str", "text", "varchar"), "string"),
    "bool": "boolean",
    **dict.fromkeys(("date", "datetime", "timestamp", "instant"), "time"),
    **dict.fromkeys(("binary", "blob", "bytea", "base64", "byte[]"), "bytes"),
}


def _checked_type(name: str, given: object) -> str:
    """Checks a type of the interface, and returns it as inside the network."""
    if isinstance(given, str) and given in SCALARS:
        return given
    if isinstance(given, list | tuple) and len(given) == 1 and given[0] in tuple(SCALARS):
        return f"{given[0]}{ARRAY}"
    raise _unknown_type(f'attribute "{name}"', given, "/" + token(name))


def _unknown_type(subject: str, given: object, pointer: str | None = None) -> InvalidSchema:
    meant = _ELSEWHERE.get(given.lower()) if isinstance(given, str) else None
    hint = "" if meant is None else f" (did you mean {meant}?)"
    return InvalidSchema(
        f"the type of {subject} must be one of {', '.join(SCALARS)}, or for an array a list of one of them, "
        f"got {describe(given)}{hint}",
        pointer=pointer,
    )


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidSchema(f"the name of an attribute must be a string, got {describe(name)}", pointer="")
    if len(name) > MAX_NAME:
        rule = f"must have at most {MAX_NAME} characters, got {len(name)}"
    elif name.startswith("$"):
        rule = f"must not begin with $, which is reserved, got {quote(name)}"
    elif not _NAME.fullmatch(name):
        rule = f"must be parts of letters, digits, _ and - joined by dots, got {quote(name)}"
    elif name.count(".") >= MAX_PARTS:
        rule = f"must have at most {MAX_PARTS} parts, got {name.count('.') + 1}"
    else:
        return
    raise InvalidSchema(f"the name of an attribute {rule}", pointer="/" + token(name))
