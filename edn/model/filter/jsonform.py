"""Filters in their JSON form: read from and written to plain objects.

    {"symbol": "GE", "price": {"gt": 30.0}, "$any": [{"venue": {"prefix": "NY"}}, {"volume": [100, 200]}]}

A literal is equality, a list is "one of", an object holds operators that all must hold. What stands in one
object all holds. `{"$xpath": "price > 30"}` is a condition in XPath.
"""

from __future__ import annotations

from typing import Any

from edn.errors import InvalidFilter, TooLarge
from edn.formats.strict_json import token
from edn.model.filter.ast import (
    MAX_DEPTH,
    MAX_PREDICATES,
    OPERATORS,
    STRING_OPERATORS,
    All,
    AnyOf,
    Literal,
    Node,
    Not,
    Operand,
    Place,
    Test,
    XPath,
    all_of,
    any_of,
    refused,
    surely_agree,
    surely_exclude,
    too_deep,
)
from edn.model.filter.literals import attribute_name, literal
from edn.model.wording import meant, quoted, shown

_COMBINATORS = "$any, $all, $not and $xpath"
_ALL_OPERATORS = (*OPERATORS, "not")


def read(given: object) -> Node:
    """The tree of a filter; raises `InvalidFilter` with a pointer, or `TooLarge`."""
    return _Reader().filter(given, "", 0)


class _Reader:
    def __init__(self) -> None:
        self._predicates = 0

    def filter(self, given: object, at: str, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise too_deep()
        if not isinstance(given, dict):
            raise InvalidFilter(
                f"a filter is an object of attributes and {_COMBINATORS}; got {shown(given)}", pointer=at
            )
        if not given:
            raise InvalidFilter("the filter is empty; to match everything leave it out", pointer=at)
        return all_of([self._entry(key, value, at, depth) for key, value in given.items()])

    def _entry(self, key: object, value: object, at: str, depth: int) -> Node:
        try:
            name = attribute_name(key)
        except ValueError as error:
            raise InvalidFilter(str(error), pointer=at) from None
        place = f"{at}/{token(name)}"
        if name == "$not":
            return Not(self.filter(value, place, depth + 1))
        if name in ("$any", "$all"):
            if not isinstance(value, (list, tuple)) or not value:
                raise InvalidFilter(
                    f"{name} holds a non-empty list of filters; got {_got(value)}", pointer=place
                )
            parts = [self.filter(part, f"{place}/{index}", depth + 1) for index, part in enumerate(value)]
            return any_of(parts) if name == "$any" else all_of(parts)
        if name == "$xpath":
            self._count(1)
            if not isinstance(value, str) or not value.strip():
                raise InvalidFilter(f"$xpath holds an expression; got {_got(value)}", pointer=place)
            return XPath(value, place)
        if name.startswith("$"):
            raise InvalidFilter(
                f"{quoted(name)} combines nothing; what begins with $ is {_COMBINATORS}", pointer=place
            )
        return self._conditions(name, value, place, place, depth)

    def _conditions(self, name: str, given: object, at: str, attribute_at: str, depth: int) -> Node:
        """What is said about an attribute: a literal, a list, or an object of operators."""
        if isinstance(given, (list, tuple)):
            return Test(name, "in", self._list(given, at), place=Place(attribute_at, at))
        if not isinstance(given, dict):
            self._count(1)
            return Test(name, "eq", self._literal(given, at), place=Place(attribute_at, at))
        if not given:
            raise InvalidFilter(
                f'nothing is said about "{name}"; it holds one or more of {", ".join(_ALL_OPERATORS)}',
                pointer=at,
            )
        parts: list[Node] = []
        for operator, operand in given.items():
            place = f"{at}/{token(str(operator))}"
            if operator == "not":
                if depth + 1 > MAX_DEPTH:
                    raise too_deep()
                inner = self._conditions(name, operand, place, attribute_at, depth + 1)
                parts.append(refused(name, inner, Place(attribute_at, place)))
            elif operator in OPERATORS:
                checked = self._operand(operator, operand, place)
                parts.append(Test(name, operator, checked, place=Place(attribute_at, place)))
            else:
                raise InvalidFilter(_unknown_operator(name, operator), pointer=place)
        _check_bounds(given, at)
        return all_of(parts)

    def _operand(self, operator: str, given: object, at: str) -> Operand:
        if operator == "in":
            if not isinstance(given, (list, tuple)):
                raise InvalidFilter(f"in holds a list of literals; got {shown(given)}", pointer=at)
            return self._list(given, at)
        self._count(1)
        if operator == "exists":
            if not isinstance(given, bool):
                raise InvalidFilter(f"exists is true or false; got {shown(given)}", pointer=at)
            return given
        if operator == "between":
            if not isinstance(given, (list, tuple)) or len(given) != 2:
                raise InvalidFilter(f"between holds a list [lo, hi]; got {_got(given)}", pointer=at)
            lo, hi = (self._literal(bound, f"{at}/{index}") for index, bound in enumerate(given))
            if surely_exclude("gte", lo, "lte", hi):
                raise InvalidFilter(f"between has lo > hi: {lo!r} > {hi!r}", pointer=at)
            return (lo, hi)
        value = self._literal(given, at)
        if operator in STRING_OPERATORS and not isinstance(value, str):
            raise InvalidFilter(f"{operator} holds a string; got {shown(given)}", pointer=at)
        return value

    def _list(self, given: list[Any] | tuple[Any, ...], at: str) -> tuple[Literal, ...]:
        if not given:
            raise InvalidFilter("the list is empty, so that nothing could match", pointer=at)
        self._count(len(given))
        return tuple(self._literal(item, f"{at}/{index}") for index, item in enumerate(given))

    def _literal(self, given: object, at: str) -> Literal:
        try:
            return literal(given)
        except ValueError as error:
            raise InvalidFilter(str(error), pointer=at) from None

    def _count(self, predicates: int) -> None:
        self._predicates += predicates
        if self._predicates > MAX_PREDICATES:
            raise TooLarge(f"the filter has more than {MAX_PREDICATES} predicates")


def _check_bounds(operators: dict[str, Any], at: str) -> None:
    for lower in ("gt", "gte"):
        for upper in ("lt", "lte"):
            if lower in operators and upper in operators:
                lo, hi = operators[lower], operators[upper]
                if surely_exclude(lower, lo, upper, hi):
                    raise InvalidFilter(
                        f"{lower} {lo!r} and {upper} {hi!r} never hold together: lo > hi", pointer=at
                    )


def _unknown_operator(name: str, operator: object) -> str:
    given = str(operator)
    return (
        f"{quoted(given)} is no operator; {meant(given, _ALL_OPERATORS)}"
        f"the operators are {', '.join(_ALL_OPERATORS)} "
        f'(a nested attribute is written "{name}.{given[:40]}")'
    )


def _got(given: object) -> str:
    if isinstance(given, (list, tuple)):
        return f"a list of {len(given)}" if given else "an empty list"
    return shown(given)


def write(node: Node) -> dict[str, Any]:
    """The JSON form of a tree; reading it gives an equal tree."""
    whole = _Object()
    extra = [
        _alone(part) for part in (node.parts if isinstance(node, All) else (node,)) if not whole.take(part)
    ]
    given = whole.given()
    return given | {"$all": extra} if extra else given


def _alone(part: Node) -> dict[str, Any]:
    whole = _Object()
    whole.take(part)
    return whole.given()


class _Object:
    """A JSON object in the making. It refuses a part for which it has no key left."""

    def __init__(self) -> None:
        self._combined: dict[str, Any] = {}
        self._tests: dict[str, dict[str, Test]] = {}

    def take(self, part: Node) -> bool:
        match part:
            case Test():
                slot = "not" if part.negated else part.operator
                tests = self._tests.setdefault(part.attribute, {})
                if slot in tests or not all(_may_share(part, other) for other in tests.values()):
                    return False
                tests[slot] = part
                return True
            case Not(inner):
                return self._combine("$not", write(inner) if "$not" not in self._combined else None)
            case XPath(text):
                return self._combine("$xpath", text if "$xpath" not in self._combined else None)
            case AnyOf(parts):
                return self._combine(
                    "$any", list(map(write, parts)) if "$any" not in self._combined else None
                )
            case All():
                raise AssertionError("a canonical tree has no conjunction inside a conjunction")

    def _combine(self, key: str, value: Any) -> bool:
        if value is None:
            return False
        self._combined[key] = value
        return True

    def given(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for attribute, tests in self._tests.items():
            operators = {slot: _operand(test) for slot, test in tests.items()}
            if len(operators) == 1 and ("eq" in operators or "in" in operators):
                given[attribute] = next(iter(operators.values()))
            else:
                given[attribute] = operators
        return given | self._combined


def _operand(test: Test) -> Any:
    plain = list(test.operand) if isinstance(test.operand, tuple) else test.operand
    return {test.operator: plain} if test.negated else plain


def _may_share(one: Test, other: Test) -> bool:
    """Whether two tests may stand in one object: not if it could then be refused for bounds that exclude
    each other."""
    if one.negated or other.negated:
        return True
    if one.place.group is not None and one.place.group == other.place.group:
        return True
    for lower, upper in ((one, other), (other, one)):
        if lower.operator in ("gt", "gte") and upper.operator in ("lt", "lte"):
            return surely_agree(lower.operator, lower.literals[0], upper.operator, upper.literals[0])
    return True
