"""A topic's schema: which attributes its events have, of which types, and in which columns they lie.

Columns are append-only, so that points and rectangles made under an earlier schema stay true under a later
one: an attribute that is removed leaves its column behind, retired; one that comes back with another type
gets a new one. On the wire a schema is its (name, type) pairs in column order, and a later column retires an
earlier one that it cannot live beside: one of the same name, or one that is its parent or child (`a` and
`a.b`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from edn.errors import InvalidSchema
from edn.formats.strict_json import token
from edn.model.coordinates import DOMAINS, Domain, Key
from edn.model.event import EventBatch, EventDecoder
from edn.model.wording import quoted, shown

MAX_ATTRIBUTES = 256
MAX_NAME = 128
#: parts of a dotted name; an event that nests them, inside a batch, stays within the depth that JSON may have
MAX_PARTS = 30

_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")


@dataclass(frozen=True, slots=True)
class Column:
    """One dimension of the topic's space."""

    name: str
    #: a key of `edn.model.coordinates.DOMAINS`
    type: str
    #: no event fills it any more
    retired: bool = False

    @property
    def domain(self) -> Domain:
        return DOMAINS[self.type]


@dataclass(frozen=True)  # without slots: the decoders are made once, when first needed
class Schema:
    """The columns of a topic; two schemas are equal if all of their columns are."""

    columns: tuple[Column, ...]

    @classmethod
    def parse(cls, attributes: object) -> Schema:
        """A new topic's schema from `{"symbol": "string", …}`; raises `InvalidSchema` with the place."""
        return cls(tuple(Column(name, type_) for name, type_ in _checked(attributes).items()))

    @classmethod
    def from_wire(cls, columns: Sequence[Sequence[str]]) -> Schema:
        """The schema that `to_wire` gave, except that what was removed without a successor is live in it."""
        for index, (_, type_) in enumerate(columns):
            if type_ not in DOMAINS:
                raise InvalidSchema(f"column {index} has the unknown type {shown(type_)}")
        live: list[Column] = []
        # Names of later columns, and the names that these lie below: linear, as servers read many schemas.
        later: set[str] = set()
        above: set[str] = set()
        for name, type_ in reversed(columns):
            ancestors = _ancestors(name)
            clashing = name in later or name in above or not later.isdisjoint(ancestors)
            live.append(Column(name, type_, retired=clashing))
            later.add(name)
            above.update(ancestors)
        return cls(tuple(reversed(live)))

    def to_wire(self) -> list[tuple[str, str]]:
        return [(column.name, column.type) for column in self.columns]

    @property
    def width(self) -> int:
        return len(self.columns)

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Name → type of what events may have now."""
        return {column.name: column.type for column in self.columns if not column.retired}

    def column_of(self, name: str) -> int | None:
        """The column of a live attribute, or None."""
        return self._places.get(name)

    def removed(self, attributes: object) -> list[str]:
        """Names that the new attributes no longer have, or have with another type."""
        new = _checked(attributes)
        return [name for name, type_ in self.attributes.items() if new.get(name) != type_]

    def evolve(self, attributes: object) -> Schema:
        """The schema after the change to these attributes; every column keeps its place."""
        new = _checked(attributes)
        columns = [replace(column, retired=True) for column in self.columns]
        for name, type_ in new.items():
            place = self._reusable(name, type_)
            if place is None:
                columns.append(Column(name, type_))
            else:
                columns[place] = Column(name, type_)
        return self if tuple(columns) == self.columns else Schema(tuple(columns))

    def decode_events(self, body: bytes) -> EventBatch:
        """The events of a JSON object or array; raises `InvalidEvent`, `MalformedJson` or `TooLarge`."""
        return self._decoder.decode(body)

    def values(self, body: bytes) -> dict[str, Key]:
        """The attributes in a stored body as keys that predicates compare; what is missing is left out."""
        return self._decoder.values(body)

    @cached_property
    def _decoder(self) -> EventDecoder:
        return EventDecoder(
            {name: (place, self.columns[place].type) for name, place in self._places.items()}, self.width
        )

    @cached_property
    def _places(self) -> dict[str, int]:
        return {column.name: place for place, column in enumerate(self.columns) if not column.retired}

    def _reusable(self, name: str, type_: str) -> int | None:
        """The column that the attribute has or may take up again; one that a later one retires it may not."""
        named, above = self._last
        clashing = [
            named.get(name, -1),
            above.get(name, -1),
            *(named.get(one, -1) for one in _ancestors(name)),
        ]
        place = max(clashing)
        if place < 0:
            return None
        column = self.columns[place]
        return place if (column.name, column.type) == (name, type_) else None

    @cached_property
    def _last(self) -> tuple[dict[str, int], dict[str, int]]:
        """The last column of each name, and the last one below each name."""
        named: dict[str, int] = {}
        above: dict[str, int] = {}
        for place, column in enumerate(self.columns):
            named[column.name] = place
            above.update(dict.fromkeys(_ancestors(column.name), place))
        return named, above


def _ancestors(name: str) -> list[str]:
    """The names that cannot be attributes beside this one, because it lies below them: a.b.c → a.b, a."""
    found = []
    while (at := name.rfind(".")) >= 0:
        name = name[:at]
        found.append(name)
    return found


def _checked(attributes: object) -> dict[str, str]:
    if not isinstance(attributes, Mapping):
        raise InvalidSchema(
            'attributes are an object such as {"symbol": "string", "price": "number"}; got '
            + shown(attributes),
            pointer="",
        )
    if not attributes:
        raise InvalidSchema("a schema needs at least one attribute", pointer="")
    if len(attributes) > MAX_ATTRIBUTES:
        raise InvalidSchema(f"{len(attributes)} attributes; at most {MAX_ATTRIBUTES} are allowed", pointer="")
    checked: dict[str, str] = {}
    for name, type_ in attributes.items():
        _check_name(name)
        if not isinstance(type_, str) or type_ not in DOMAINS:
            raise InvalidSchema(
                f'attribute "{name}" has the type {shown(type_)}; the types are {", ".join(DOMAINS)}',
                pointer="/" + token(name),
            )
        checked[name] = type_
    _check_parents(checked)
    return checked


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidSchema(f"an attribute's name is a string; got {shown(name)}", pointer="")
    pointer = "/" + token(name)
    if len(name) > MAX_NAME:
        raise InvalidSchema(
            f"an attribute's name has {len(name)} characters; at most {MAX_NAME} are allowed", pointer=pointer
        )
    if name.startswith("$"):
        raise InvalidSchema(
            f"{quoted(name)} begins with $, which is kept for the network's own keys", pointer=pointer
        )
    if not _NAME.fullmatch(name):
        raise InvalidSchema(
            f"{quoted(name)} is no attribute's name: parts of letters, digits, _ and - joined by dots",
            pointer=pointer,
        )
    if name.count(".") >= MAX_PARTS:
        raise InvalidSchema(f"an attribute's name has more than {MAX_PARTS} parts", pointer=pointer)


def _check_parents(names: Iterable[str]) -> None:
    taken = set(names)
    for name in taken:
        parts = name.split(".")
        for size in range(1, len(parts)):
            parent = ".".join(parts[:size])
            if parent in taken:
                raise InvalidSchema(
                    f'"{parent}" cannot be an attribute and the parent of "{name}" at once',
                    pointer="/" + token(name),
                )
