"""Schemas, filters and events that aim at the corners of the model.

Filters of one space draw their constants from a small pool an attribute, so that bounds touch, nest and
repeat, and events are drawn from the same pools and their neighbours, so that they match often.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from tests.oracle.values import Values
from tests.workload.literals import BY_TYPE, TIMES, write

#: every operator and combinator, and the two short forms
OPERATORS = frozenset(
    {"eq", "ne", "lt", "lte", "gt", "gte", "between", "prefix", "suffix", "contains", "exists", "in", "not"}
    | {"$any", "$all", "$not", "literal", "list"}
)

# Names that collide with operators, with words of the text form, or that nest.
_NAMES = [
    "price", "symbol", "volume", "gt", "in", "not", "exists", "between", "and", "or", "true", "x-y", "_",
    "n0", "a.b", "a.c", "a.d.e", "deep.er.still", "prefix", "NOT", "Price",
]  # fmt: skip

_EARLIEST, _LATEST = min(TIMES), max(TIMES)


def schema(chance: random.Random, *, width: int | None = None) -> dict[str, str]:
    """Attributes of all types, strings and numbers more often than the others."""
    names = chance.sample(_NAMES, width or chance.randint(2, 7))
    kinds = ["number", "integer", "string", "boolean", "time", "string", "number"]
    chance.shuffle(kinds)
    return {name: kinds[place % len(kinds)] for place, name in enumerate(names)}


class Space:
    """One schema, with the pool of constants that its filters and events share."""

    def __init__(self, chance: random.Random, attributes: Mapping[str, str] | None = None) -> None:
        self.chance = chance
        self.attributes = dict(attributes or schema(chance))
        self.pool = {name: self._pool(kind) for name, kind in self.attributes.items()}

    def _pool(self, kind: str) -> list[Any]:
        known = BY_TYPE[kind]
        chosen = self.chance.sample(known, min(len(known), 9))
        if kind == "number":
            chosen += [round(self.chance.uniform(0, 60), 2) for _ in range(3)]
        elif kind == "integer":
            chosen += [self.chance.randint(0, 60) for _ in range(3)]
        return chosen

    # -- filters ---------------------------------------------------------------------------------------

    def filter(self, depth: int = 2) -> dict[str, Any]:
        """A filter that is well-formed and not refused as one that can never match."""
        chance = self.chance
        written: dict[str, Any] = {}
        if depth and chance.random() < 0.25:
            combinator = chance.choice(["$any", "$all", "$not", "$any"])
            written[combinator] = (
                self.filter(depth - 1)
                if combinator == "$not"
                else [self.filter(depth - 1) for _ in range(chance.randint(1, 3))]
            )
            if chance.random() < 0.5:
                return written
        count = min(len(self.attributes), chance.choice([1, 1, 1, 2, 2, 3]))
        for name in chance.sample(sorted(self.attributes), count):
            written[name] = self.condition(name)
        return written

    def simple_filter(self) -> dict[str, Any]:
        """A conjunction of ranges, equalities and prefixes only: covering is decided completely for these."""
        chance = self.chance
        written: dict[str, Any] = {}
        for name in chance.sample(
            sorted(self.attributes), min(len(self.attributes), chance.choice([1, 1, 2, 3]))
        ):
            kind = self.attributes[name]
            choices = [self._equality] if kind == "boolean" else [self._equality, self._range]
            if kind == "string":
                choices.append(self._prefix)
            written[name] = chance.choice(choices)(name)
            if isinstance(written[name], dict):
                written[name].pop("ne", None)
        return written

    def wide_filter(self) -> dict[str, Any]:
        """So many alternatives that their rectangles must be merged and covering must give up."""
        chance = self.chance
        written: dict[str, Any] = {}
        for name in chance.sample(sorted(self.attributes), min(len(self.attributes), 3)):
            members = [self._constant(name) for _ in range(chance.randint(5, 40))]
            written[name] = chance.choice([members, {"not": members}])
        branches = [self.filter(1) for _ in range(chance.randint(4, 20))]
        written[chance.choice(["$any", "$all"])] = branches
        return {"$not": written} if chance.random() < 0.3 else written

    def condition(self, name: str, *, negated: bool = False) -> Any:
        chance = self.chance
        kind = self.attributes[name]
        choices = [self._equality, self._unequal, self._members, self._exists]
        if kind != "boolean":
            choices += [self._range, self._range, self._range]
        if kind == "string":
            choices += [self._prefix, self._suffix, self._contains, self._affixes]
        if not negated:
            choices.append(self._negation)
        return chance.choice(choices)(name)

    def _constant(self, name: str) -> Any:
        return write(self.attributes[name], self.chance.choice(self.pool[name]), self.chance)

    def _equality(self, name: str) -> Any:
        constant = self._constant(name)
        return constant if self.chance.random() < 0.5 else {"eq": constant}

    def _unequal(self, name: str) -> Any:
        return {"ne": self._constant(name)}

    def _members(self, name: str) -> Any:
        members = [self._constant(name) for _ in range(self.chance.randint(1, 4))]
        return members if self.chance.random() < 0.5 else {"in": members}

    def _exists(self, name: str) -> Any:
        return {"exists": self.chance.random() < 0.5}

    def _negation(self, name: str) -> Any:
        return {"not": self.condition(name, negated=True)}

    def _range(self, name: str) -> Any:
        chance, kind = self.chance, self.attributes[name]
        first, second = sorted(chance.sample(self.pool[name], 2))
        low, high = write(kind, first, chance), write(kind, second, chance)
        form = chance.randrange(6)
        if form == 0:
            return {chance.choice(["lt", "lte"]): high}
        if form == 1:
            return {chance.choice(["gt", "gte"]): low}
        if form in (2, 3):
            return {"between": [low, high]}
        if first == second:
            return {"gte": low, "lte": high}
        # One bound at least is closed: two open ones may have nothing between them, which is refused.
        bounds = chance.choice([("gte", "lte"), ("gt", "lte"), ("gte", "lt")])
        both = {bounds[0]: low, bounds[1]: high}
        if chance.random() < 0.2:
            both["ne"] = self._constant(name)
        return both

    def _piece(self, name: str) -> str:
        text: str = self.chance.choice(self.pool[name])
        if len(text) < 2 or self.chance.random() < 0.3:
            return text
        start = self.chance.randrange(len(text))
        return text[start : start + self.chance.randint(1, 4)]

    def _prefix(self, name: str) -> Any:
        text: str = self.chance.choice(self.pool[name])
        return {"prefix": text[: self.chance.randint(0, len(text))] or text}

    def _suffix(self, name: str) -> Any:
        text: str = self.chance.choice(self.pool[name])
        return {"suffix": text[self.chance.randint(0, len(text)) :] or text}

    def _contains(self, name: str) -> Any:
        return {"contains": self._piece(name)}

    def _affixes(self, name: str) -> Any:
        return {
            **self._prefix(name),
            **(self._suffix(name) if self.chance.random() < 0.5 else self._contains(name)),
        }

    # -- events ----------------------------------------------------------------------------------------

    def event(self, values: Values) -> dict[str, Any]:
        """The values as an event in JSON: nested or dotted, missing ones left out or null."""
        chance = self.chance
        written: dict[str, Any] = {}
        for name in self.attributes:
            if name not in values and chance.random() < 0.7:
                continue
            literal = write(self.attributes[name], values[name], chance) if name in values else None
            self._place(written, name, literal)
        return written

    def _place(self, written: dict[str, Any], name: str, literal: Any) -> None:
        """Puts an attribute where a nested object says, or under its dotted name."""
        parts = name.split(".")
        if len(parts) == 1 or self.chance.random() < 0.3:
            written[name] = literal
            return
        inner = written
        for part in parts[:-1]:
            inner = inner.setdefault(part, {})
        inner[parts[-1]] = literal


def can_be_written(kind: str, value: Any) -> bool:
    """Times that arithmetic reached but no four-digit year can write are left out of events."""
    return kind != "time" or _EARLIEST <= value <= _LATEST


def operators(written: Mapping[str, Any] | None) -> Iterator[str]:
    """Every operator and combinator that a filter uses, short forms by their names."""
    for key, part in (written or {}).items():
        if key in ("$any", "$all"):
            yield key
            for branch in part:
                yield from operators(branch)
        elif key == "$not":
            yield key
            yield from operators(part)
        else:
            yield from _condition_operators(part)


def _condition_operators(condition: Any) -> Iterator[str]:
    if isinstance(condition, list):
        yield "list"
    elif not isinstance(condition, Mapping):
        yield "literal"
    else:
        for operator, operand in condition.items():
            yield operator
            if operator == "not":
                yield from _condition_operators(operand)


def rarest_share(filters: list[dict[str, Any]]) -> tuple[str, float]:
    """The operator that fewest of the filters use, and the share of filters that do."""
    used = [set(operators(written)) for written in filters]
    shares = {operator: sum(operator in names for names in used) / len(filters) for operator in OPERATORS}
    rarest = min(shares, key=lambda operator: shares[operator])
    return rarest, shares[rarest]
