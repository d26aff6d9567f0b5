"""The JSON form of filters.

    {"symbol": "GE", "price": {"gt": 30.0}, "$any": [{"venue": {"prefix": "NY"}}, {"volume": [100, 200]}]}

A literal means equality, a list "one of", an object a conjunction of operators. All keys of an object must
hold. `{"$xpath": "price > 30"}` is a condition in XPath. `any` and `all` have a condition on the elements of
an array, in which `$any` and `$all` combine conditions: `{"tags": {"any": {"prefix": "a"}}}`.
"""

from __future__ import annotations

from typing import Any

from edn.errors import InvalidFilter
from edn.formats.strict_json import token
from edn.model.filter.ast import (
    MAX_DEPTH,
    MAX_PREDICATES,
    OPERATORS,
    QUANTIFIERS,
    STRING_OPERATORS,
    All,
    AnyOf,
    Each,
    Literal,
    Node,
    Not,
    Operand,
    Place,
    Test,
    XPath,
    all_of,
    any_of,
    check_literal,
    check_name,
    contradiction,
    negate_conditions,
    negate_element,
    surely_agree,
    surely_exclude,
    too_deep,
    too_many_predicates,
)
from edn.model.messages import describe, quote, suggestion

_COMBINATORS = "$any, $all, $not, $xpath"
_ALL_OPERATORS = (*OPERATORS, *QUANTIFIERS, "not")
_ELEMENT_OPERATORS = tuple(operator for operator in OPERATORS if operator != "exists")


def read(given: object) -> Node:
    """Parses a filter; raises `InvalidFilter` with a pointer, or `TooLarge`."""
    return Reader().filter(given, "", 0)


class Reader:
    """Reads one filter, or the conditions of one advertisement: it counts their predicates."""

    def __init__(self) -> None:
        self._predicates = 0

    def conditions(self, name: str, given: object, at: str, attribute_at: str) -> Node:
        """Reads conditions on one attribute: a literal, a list or an object of operators."""
        return self._conditions(name, given, at, attribute_at, 0)

    def filter(self, given: object, at: str, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise too_deep()
        if not isinstance(given, dict):
            raise InvalidFilter(
                f"a filter must be an object of attributes and keys {_COMBINATORS}, got {describe(given)}",
                pointer=at,
            )
        if not given:
            raise InvalidFilter("a filter must not be empty; to match everything, leave it out", pointer=at)
        return all_of([self._entry(key, value, at, depth) for key, value in given.items()])

    def _entry(self, key: object, value: object, at: str, depth: int) -> Node:
        name = check_name(key, pointer=at)
        place = f"{at}/{token(name)}"
        if name == "$not":
            return Not(self.filter(value, place, depth + 1))
        if name in ("$any", "$all"):
            if not isinstance(value, (list, tuple)) or not value:
                raise InvalidFilter(
                    f"{name} must be a non-empty list of filters, got {_got(value)}", pointer=place
                )
            parts = [self.filter(part, f"{place}/{index}", depth + 1) for index, part in enumerate(value)]
            return any_of(parts) if name == "$any" else all_of(parts)
        if name == "$xpath":
            self._count(1)
            if not isinstance(value, str) or not value.strip():
                raise InvalidFilter(
                    f"$xpath must be an XPath expression as a string, got {_got(value)}", pointer=place
                )
            return XPath(value, place)
        if name.startswith("$"):
            raise InvalidFilter(
                f"a key that begins with $ must be one of {_COMBINATORS}, got {quote(name)}", pointer=place
            )
        return self._conditions(name, value, place, place, depth)

    def _conditions(self, name: str, given: object, at: str, attribute_at: str, depth: int) -> Node:
        """Reads the conditions on an attribute: a literal, a list or an object of operators."""
        if isinstance(given, (list, tuple)):
            return Test(name, "in", self._list(given, at), place=Place(attribute_at, at))
        if not isinstance(given, dict):
            self._count(1)
            return Test(name, "eq", check_literal(given, pointer=at), place=Place(attribute_at, at))
        if not given:
            raise InvalidFilter(
                f'the condition on "{name}" must have at least one operator of {", ".join(_ALL_OPERATORS)}',
                pointer=at,
            )
        parts: list[Node] = []
        for operator, operand in given.items():
            place = f"{at}/{token(str(operator))}"
            if operator == "not":
                if depth + 1 > MAX_DEPTH:
                    raise too_deep()
                inner = self._conditions(name, operand, place, attribute_at, depth + 1)
                parts.append(negate_conditions(name, inner, Place(attribute_at, place)))
            elif operator in QUANTIFIERS:
                part = self._element(name, operand, place, attribute_at, depth + 1)
                parts.append(Each(name, operator, part, place=Place(attribute_at, place)))
            elif operator in OPERATORS:
                checked = self._operand(operator, operand, place)
                parts.append(Test(name, operator, checked, place=Place(attribute_at, place)))
            else:
                raise InvalidFilter(_unknown_operator(name, operator), pointer=place)
        _check_bounds(given, at)
        return all_of(parts)

    def _element(self, name: str, given: object, at: str, attribute_at: str, depth: int) -> Node:
        """Reads the condition on an element of an array."""
        if depth > MAX_DEPTH:
            raise too_deep()
        if not isinstance(given, dict):
            return self._conditions(name, given, at, attribute_at, depth)
        if not given:
            raise InvalidFilter(
                f'the condition on elements of "{name}" must have at least one operator of '
                f"{', '.join(_ELEMENT_OPERATORS)}, not, $any, $all",
                pointer=at,
            )
        parts: list[Node] = []
        for operator, operand in given.items():
            place = f"{at}/{token(str(operator))}"
            if operator in ("$any", "$all"):
                if not isinstance(operand, (list, tuple)) or not operand:
                    raise InvalidFilter(
                        f"{operator} must be a non-empty list of conditions, got {_got(operand)}",
                        pointer=place,
                    )
                inner = [
                    self._element(name, one, f"{place}/{index}", attribute_at, depth + 1)
                    for index, one in enumerate(operand)
                ]
                parts.append(any_of(inner) if operator == "$any" else all_of(inner))
            elif operator == "not":
                parts.append(negate_element(self._element(name, operand, place, attribute_at, depth + 1)))
            elif operator in _ELEMENT_OPERATORS:
                checked = self._operand(operator, operand, place)
                parts.append(Test(name, operator, checked, place=Place(attribute_at, place)))
            else:
                raise InvalidFilter(
                    f"{quote(str(operator))} is not an operator for elements of an array; "
                    f"{suggestion(str(operator), _ELEMENT_OPERATORS)}the operators are "
                    f"{', '.join(_ELEMENT_OPERATORS)}, not, $any, $all",
                    pointer=place,
                )
        _check_bounds(given, at)
        return all_of(parts)

    def _operand(self, operator: str, given: object, at: str) -> Operand:
        if operator == "in":
            if not isinstance(given, (list, tuple)):
                raise InvalidFilter(f"in must be a list of literals, got {describe(given)}", pointer=at)
            return self._list(given, at)
        self._count(1)
        if operator == "exists":
            if not isinstance(given, bool):
                raise InvalidFilter(f"exists must be true or false, got {describe(given)}", pointer=at)
            return given
        if operator == "between":
            if not isinstance(given, (list, tuple)) or len(given) != 2:
                raise InvalidFilter(f"between must be a list [lo, hi], got {_got(given)}", pointer=at)
            lo, hi = (check_literal(bound, pointer=f"{at}/{index}") for index, bound in enumerate(given))
            if surely_exclude("gte", lo, "lte", hi):
                raise InvalidFilter(f"between must have lo <= hi, got {lo!r} > {hi!r}", pointer=at)
            return (lo, hi)
        value = check_literal(given, pointer=at)
        if operator in STRING_OPERATORS and not isinstance(value, str):
            raise InvalidFilter(f"{operator} must be a string, got {describe(given)}", pointer=at)
        return value

    def _list(self, given: list[Any] | tuple[Any, ...], at: str) -> tuple[Literal, ...]:
        if not given:
            raise InvalidFilter("a list of values must not be empty: nothing could match", pointer=at)
        self._count(len(given))
        return tuple(check_literal(item, pointer=f"{at}/{index}") for index, item in enumerate(given))

    def _count(self, predicates: int) -> None:
        self._predicates += predicates
        if self._predicates > MAX_PREDICATES:
            raise too_many_predicates()


def _check_bounds(operators: dict[str, Any], at: str) -> None:
    for lower in ("gt", "gte"):
        for upper in ("lt", "lte"):
            if lower in operators and upper in operators:
                lo, hi = operators[lower], operators[upper]
                if surely_exclude(lower, lo, upper, hi):
                    raise InvalidFilter(contradiction(lower, lo, upper, hi), pointer=at)


def _unknown_operator(name: str, operator: object) -> str:
    given = str(operator)
    return (
        f"{quote(given)} is not an operator; {suggestion(given, _ALL_OPERATORS)}"
        f"the operators are {', '.join(_ALL_OPERATORS)} "
        f'(a nested attribute is written "{name}.{given[:40]}")'
    )


def _got(given: object) -> str:
    if isinstance(given, (list, tuple)):
        return f"a list of {len(given)}" if given else "an empty list"
    return describe(given)


def write(node: Node) -> dict[str, Any]:
    """Writes the JSON form of a tree; reading it gives an equal tree."""
    whole = _Object()
    extra = [
        write(part) for part in (node.parts if isinstance(node, All) else (node,)) if not whole.add(part)
    ]
    written = whole.to_json()
    return written | {"$all": extra} if extra else written


class _Object:
    """Builds a JSON object from parts of a conjunction."""

    def __init__(self) -> None:
        self._combined: dict[str, Any] = {}
        self._tests: dict[str, dict[str, Test | Each]] = {}

    def add(self, part: Node) -> bool:
        """Adds a part, or returns False if its key is in use."""
        match part:
            case Test() | Each():
                slot = _slot(part)
                tests = self._tests.setdefault(part.attribute, {})
                if slot in tests or not all(_may_share(part, other) for other in tests.values()):
                    return False
                tests[slot] = part
            case Not(inner) if "$not" not in self._combined:
                self._combined["$not"] = write(inner)
            case XPath(text) if "$xpath" not in self._combined:
                self._combined["$xpath"] = text
            case AnyOf(parts) if "$any" not in self._combined:
                self._combined["$any"] = list(map(write, parts))
            case All():
                raise AssertionError("a canonical tree has no conjunction inside a conjunction")
            case _:
                return False
        return True

    def to_json(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for attribute, tests in self._tests.items():
            given[attribute] = _shortened({slot: _operand(test) for slot, test in tests.items()})
        return given | self._combined


def _shortened(operators: dict[str, Any]) -> Any:
    """Writes a single equality or list without its operator."""
    if len(operators) == 1 and ("eq" in operators or "in" in operators):
        return next(iter(operators.values()))
    return operators


def _slot(test: Test | Each) -> str:
    if test.negated:
        return "not"
    return test.operator if isinstance(test, Test) else test.quantifier


def _operand(test: Test | Each) -> Any:
    if isinstance(test, Each):
        element = _element(test.part)
        return {test.quantifier: element} if test.negated else element
    plain = list(test.operand) if isinstance(test.operand, tuple) else test.operand
    return {test.operator: plain} if test.negated else plain


def _element(node: Node) -> Any:
    """Writes a condition on an element; what does not fit into one object is under $all."""
    written: dict[str, Any] = {}
    tests: list[Test] = []
    extra: list[Any] = []
    for part in node.parts if isinstance(node, All) else (node,):
        match part:
            case Test() if _slot(part) not in written and all(_may_share(part, one) for one in tests):
                written[_slot(part)] = _operand(part)
                tests.append(part)
            case Not(inner) if "not" not in written:
                written["not"] = _element(inner)
            case AnyOf(parts) if "$any" not in written:
                written["$any"] = list(map(_element, parts))
            case _:
                extra.append(_element(part))
    if extra:
        written["$all"] = extra
    return _shortened(written)


def _may_share(one: Test | Each, other: Test | Each) -> bool:
    """Tells whether two tests may share an object: not if their bounds could exclude each other."""
    if isinstance(one, Each) or isinstance(other, Each) or one.negated or other.negated:
        return True
    if one.place.group is not None and one.place.group == other.place.group:
        return True
    for lower, upper in ((one, other), (other, one)):
        if lower.operator in ("gt", "gte") and upper.operator in ("lt", "lte"):
            return surely_agree(lower.operator, lower.literals[0], upper.operator, upper.literals[0])
    return True
