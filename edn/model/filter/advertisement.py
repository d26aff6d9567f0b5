"""Advertisements: the events that a publisher will send.

    {"what": ["alarm", "login"], "level": [{"gt": 3, "lt": 7}], "username": "any"}

Each attribute has a list of alternatives, which are literals or objects of operators; `any` in place of the
list stands for every value. An event is covered if each attribute it has satisfies one of the alternatives.
So an attribute may always be missing, and an attribute that the advertisement does not name must be missing,
unless `"$others": "any"` leaves the others free. Only attributes of the topic count: undeclared fields play
no part.

Theory of operation
-------------------
Missing is a value like any other (docs/adr/0001), so an advertisement is a filter: the conjunction over all
attributes of the schema of "missing, or one of the alternatives". Three methods of `BoundFilter` answer every
question: does it cover an event (`matches`), does it cover another advertisement (`covers`), can a filter
match an event that it covers (`overlaps`).

The filter depends on the schema. An advertisement that does not leave others free does not cover events that
have an attribute which was added to the schema later.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edn.errors import InvalidAdvertisement, InvalidFilter, TooLarge
from edn.formats.strict_json import token
from edn.model.coordinates import Key
from edn.model.filter.ast import (
    MAX_PREDICATES,
    OPERATORS,
    QUANTIFIERS,
    Node,
    Test,
    all_of,
    any_of,
    check_depth,
    check_name,
    count_predicates,
    identity,
)
from edn.model.filter.binding import BoundNode, Predicate, Values, bind, normal, predicate
from edn.model.filter.boxes import Expansion
from edn.model.filter.filter import BoundFilter, Filter, expanded_sides
from edn.model.filter.jsonform import Reader
from edn.model.filter.rectangles import Sides
from edn.model.messages import describe, quote, unknown_attribute
from edn.model.rect import Rects
from edn.model.schema import Schema

#: every value, in place of a list of alternatives
ANY = "any"
#: key that leaves the attributes without alternatives free
OTHERS = "$others"
#: alternatives of one attribute; None is every value
Alternatives = tuple[Node, ...] | None

_FORM = 'a list of alternatives such as ["GE"] or [{"gt": 30}], or "any"'
#: boxes and intersections for the question whether an alternative leaves a value
_ROOM, _STEPS = 64, 1_024


class Advertisement:
    """The events that a publisher will send. Immutable; equal if the alternatives are."""

    __slots__ = ("_given", "_identity", "alternatives", "is_open")

    def __init__(
        self, given: Mapping[str, Any], alternatives: Mapping[str, Alternatives], is_open: bool
    ) -> None:
        self._given = given
        #: attribute → its alternatives
        self.alternatives = alternatives
        #: whether attributes without alternatives may have any value
        self.is_open = is_open
        self._identity: Hashable = (
            is_open,
            frozenset(
                (name, None if some is None else frozenset(map(identity, some)))
                for name, some in alternatives.items()
            ),
        )

    @classmethod
    def parse(cls, given: object) -> Advertisement:
        """Parses the JSON form; raises `InvalidAdvertisement` with a pointer, or `TooLarge`."""
        if not isinstance(given, Mapping):
            hint = "; advertisements have no text form" if isinstance(given, str) else ""
            raise InvalidAdvertisement(
                f"an advertisement must be an object: attribute → {_FORM}, got {describe(given)}{hint}",
                pointer="",
            )
        if not given:
            raise InvalidAdvertisement(
                'an advertisement must name at least one attribute; {"$others": "any"} covers every event',
                pointer="",
            )
        reader = Reader()
        alternatives: dict[str, Alternatives] = {}
        is_open = False
        try:
            for key, value in given.items():
                name = check_name(key, pointer="")
                if name == OTHERS:
                    is_open = _read_others(value)
                elif name.startswith("$"):
                    raise _unknown_key(name)
                else:
                    alternatives[name] = _read_alternatives(reader, name, value)
        except InvalidFilter as error:
            raise InvalidAdvertisement(error.detail, pointer=error.pointer) from None
        except TooLarge as error:
            raise TooLarge(error.detail.replace("a filter", "an advertisement")) from None
        return cls(given, alternatives, is_open)

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form as it was given. Parsing it gives an equal advertisement."""
        return dict(self._given)

    @property
    def predicates(self) -> int:
        """Number of comparisons, as quotas count them; `any` counts as one."""
        return sum(
            1 if some is None else sum(map(count_predicates, some)) for some in self.alternatives.values()
        ) + int(self.is_open)

    def bind(self, schema: Schema) -> BoundAdvertisement:
        """Binds to a schema; raises `InvalidAdvertisement` if a name, type or alternative does not fit it."""
        try:
            for name, some in self.alternatives.items():
                self._check(name, some, schema)
            return BoundAdvertisement(self, Filter(self._root(schema)).bind(schema))
        except InvalidFilter as error:
            raise InvalidAdvertisement(error.detail, pointer=error.pointer) from None

    def _check(self, name: str, some: Alternatives, schema: Schema) -> None:
        pointer = f"/{token(name)}"
        if schema.column_of(name) is None:
            hint = f'; to leave other attributes free, write "{OTHERS}": "any"' if name == "others" else ""
            raise InvalidAdvertisement(unknown_attribute(name, list(schema.types)) + hint, pointer=pointer)
        for index, node in enumerate(some or ()):
            bound = bind(node, schema)
            if not Expansion(_ROOM, joins=True, steps=_STEPS).expand(normal(bound)):
                raise InvalidAdvertisement(
                    f'an alternative of "{name}" must leave at least one value, but its conditions exclude '
                    "each other",
                    pointer=f"{pointer}/{index}",
                )

    def _root(self, schema: Schema) -> Node | None:
        """Builds the condition that covers the same events; None for all events."""
        parts = [part for name in schema.types if (part := self.part(name)) is not None]
        return all_of(parts) if parts else None

    def part(self, name: str) -> Node | None:
        """Builds the condition on one attribute of a schema; None if every value is covered."""
        missing = Test(name, "exists", False)
        if name not in self.alternatives:
            return None if self.is_open else missing
        some = self.alternatives[name]
        return None if some is None else any_of([missing, *some])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Advertisement) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"Advertisement({self._given!r})"


@dataclass(frozen=True, eq=False)  # no slots: `cached_property` needs a `__dict__`
class BoundAdvertisement:
    """An advertisement bound to a schema."""

    advertisement: Advertisement
    #: the filter that matches the events that the advertisement covers
    filter: BoundFilter

    @property
    def schema(self) -> Schema:
        return self.filter.schema

    @property
    def matches(self) -> Predicate:
        """Tells whether it covers an event, given as values (`Schema.values`)."""
        return self.filter.matches

    def rects(self) -> Rects:
        return self.filter.rects()

    def covers(self, other: BoundAdvertisement) -> bool:
        """Tells whether it covers every event that the other covers; never wrongly True."""
        return self.filter.covers(other.filter)

    def overlaps(self, subscription: BoundFilter) -> bool:
        """Tells whether a filter may match an event that it covers; never wrongly False."""
        return self.filter.overlaps(subscription)

    @cached_property
    def sides(self) -> Sides:
        """Returns the segments of each column that not every value is covered in.

        An advertisement is the product of its columns, so this is one box, however many alternatives it has.
        """
        found: Sides = {}
        for name, part in self._nodes.items():
            column = self.schema.column_of(name)
            assert column is not None
            exact = not Filter(self.advertisement.part(name)).is_covered
            segments = [
                segment for box in expanded_sides(part, exact=exact) for segment in box.get(column, [])
            ]
            found[column] = sorted(segments)
        return found

    @cached_property
    def literals(self) -> dict[str, list[Key]]:
        """The attributes whose alternatives are all single values, with these values."""
        found: dict[str, list[Key]] = {}
        for name, some in self.advertisement.alternatives.items():
            column = self.schema.column_of(name)
            if some is None or column is None:
                continue
            tests = [one for one in some if isinstance(one, Test) and not one.negated]
            if len(tests) == len(some) and all(one.operator in ("eq", "in") for one in tests):
                domain = self.schema.columns[column].domain
                found[name] = [domain.key(literal) for one in tests for literal in one.literals]
        return found

    def uncovered(self, values: Values) -> list[str]:
        """Lists the attributes of an event whose values it does not cover."""
        return [name for name in values if name in self._parts and not self._parts[name](values)]

    @cached_property
    def _nodes(self) -> dict[str, BoundNode]:
        """The condition on each attribute that has one."""
        parts = [(name, self.advertisement.part(name)) for name in self.schema.types]
        return {name: bind(part, self.schema) for name, part in parts if part is not None}

    @cached_property
    def _parts(self) -> dict[str, Predicate]:
        return {name: predicate(node) for name, node in self._nodes.items()}


def _read_others(value: object) -> bool:
    if value == ANY:
        return True
    raise InvalidAdvertisement(
        f'{OTHERS} must be "any"; leave it out if other attributes are always missing, got {describe(value)}',
        pointer=f"/{OTHERS}",
    )


def _read_alternatives(reader: Reader, name: str, given: object) -> Alternatives:
    pointer = f"/{token(name)}"
    if given == ANY:
        return None
    if not isinstance(given, list | tuple):
        form = "; that is the form of a filter" if isinstance(given, dict | str | int | float | bool) else ""
        raise InvalidAdvertisement(
            f'the value of "{name}" must be {_FORM}, got {describe(given)}{form}', pointer=pointer
        )
    if not given:
        raise InvalidAdvertisement(
            f'the list of alternatives of "{name}" must not be empty; leave it out if it is always missing',
            pointer=pointer,
        )
    return tuple(
        _read_alternative(reader, name, one, f"{pointer}/{place}") for place, one in enumerate(given)
    )


def _read_alternative(reader: Reader, name: str, given: object, at: str) -> Node:
    if given == ANY:
        raise InvalidAdvertisement(
            f'"any" must stand alone, as "{name}": "any", not in a list of alternatives; '
            'the string "any" is written {"eq": "any"}',
            pointer=at,
        )
    if isinstance(given, list | tuple):
        raise InvalidAdvertisement(
            "an alternative must be a literal or an object of operators, got an array", pointer=at
        )
    if isinstance(given, Mapping) and "exists" in given:
        raise InvalidAdvertisement(
            "an alternative must not have the operator exists: an attribute may always be missing, and "
            f'"{name}": "any" covers every value',
            pointer=f"{at}/exists",
        )
    node = reader.conditions(name, given, at, at)
    check_depth(node)
    return node


def _unknown_key(name: str) -> InvalidAdvertisement:
    reason = ""
    if name == "$xpath":
        reason = (
            "; an advertisement cannot contain an XPath, because alternatives are conditions on one attribute"
        )
    elif name in ("$any", "$all", "$not"):
        reason = "; that is the form of a filter"
    return InvalidAdvertisement(
        f"a key that begins with $ must be {OTHERS}, got {quote(name)}{reason}", pointer=f"/{token(name)}"
    )


#: operators of an alternative, for documents and messages
ALTERNATIVE_OPERATORS = (*(one for one in OPERATORS if one != "exists"), *QUANTIFIERS, "not")
#: comparisons of an advertisement
MOST_PREDICATES = MAX_PREDICATES
