"""Decides whether events match filters in their JSON form, operator by operator.

A condition is what stands beside an attribute's name; it is compiled to a function of that attribute's
value alone, which is what makes ten thousand filters on thousands of events affordable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracle.values import Schema, Type, Values, read

#: stands for the value of an attribute that an event lacks
MISSING = object()

Test = Callable[[Any], bool]


def _operator(operator: str, operand: Any, kind: str) -> Test:
    """The test of one operator on a value that is there."""
    if operator == "in":
        members = [read(kind, literal) for literal in operand]
        return lambda value: any(value == member for member in members)
    if operator == "between":
        low, high = (read(kind, literal) for literal in operand)
        return lambda value: low <= value and value <= high
    if operator == "not":
        inner = condition(operand, kind)
        return lambda value: not inner(value)
    constant = read(kind, operand)
    tests: dict[str, Test] = {
        "eq": lambda value: value == constant,
        "ne": lambda value: value != constant,
        "lt": lambda value: value < constant,
        "lte": lambda value: value <= constant,
        "gt": lambda value: value > constant,
        "gte": lambda value: value >= constant,
        "prefix": lambda value: value[: len(constant)] == constant,
        "suffix": lambda value: value[max(0, len(value) - len(constant)) :] == constant,
        "contains": lambda value: constant in value,
        # Not the library of the product; both mean the same by the expressions that tests draw.
        "matches": lambda value: re.search(constant, value, re.ASCII) is not None,
    }
    return tests[operator]


def _presence(wanted: bool) -> Test:
    return lambda value: (value is not MISSING) == wanted


def _if_there(test: Test) -> Test:
    return lambda value: value is not MISSING and test(value)


def _array_operator(operator: str, operand: Any, kind: list[str]) -> Test:
    """The test of one operator on an array that is there."""
    if operator == "not":
        inner = condition(operand, kind)
        return lambda array: not inner(array)
    element = _element(operand, kind[0])
    if operator == "any":
        return lambda array: any(element(one) for one in array)
    assert operator == "all"
    return lambda array: not any(not element(one) for one in array)


def _element(written: Any, kind: str) -> Test:
    """The test of a condition on one element, which may combine conditions."""
    if not isinstance(written, Mapping):
        return condition(written, kind)
    tests: list[Test] = []
    for operator, operand in written.items():
        if operator in ("$any", "$all"):
            tests.append(_combined(operator, [_element(part, kind) for part in operand]))
        elif operator == "not":
            tests.append(_opposite(_element(operand, kind)))
        else:
            tests.append(_operator(operator, operand, kind))
    return _combined("$all", tests)


def _combined(combinator: str, tests: list[Test]) -> Test:
    decide = any if combinator == "$any" else all
    return lambda value: decide([test(value) for test in tests])


def _opposite(test: Test) -> Test:
    return lambda value: not test(value)


def condition(written: Any, kind: Type) -> Test:
    """The test that a condition puts to a value or to MISSING."""
    if isinstance(kind, list):
        return _combined(
            "$all",
            [
                _presence(operand)
                if operator == "exists"
                else _if_there(_array_operator(operator, operand, kind))
                for operator, operand in written.items()
            ],
        )
    if isinstance(written, list):
        written = {"in": written}
    if not isinstance(written, Mapping):
        written = {"eq": written}
    tests: list[Test] = []
    for operator, operand in written.items():
        tests.append(
            _presence(operand) if operator == "exists" else _if_there(_operator(operator, operand, kind))
        )
    if len(tests) == 1:
        return tests[0]
    return lambda value: all(test(value) for test in tests)


def matches(written: Mapping[str, Any] | None, values: Values, schema: Schema) -> bool:
    """Whether an event, read by `values.read_event`, matches a filter."""
    return written is None or all(_part_holds(key, part, values, schema) for key, part in written.items())


def _part_holds(key: str, part: Any, values: Values, schema: Schema) -> bool:
    if key == "$any":
        return any(matches(branch, values, schema) for branch in part)
    if key == "$all":
        return all(matches(branch, values, schema) for branch in part)
    if key == "$not":
        return not matches(part, values, schema)
    return condition(part, schema[key])(values.get(key, MISSING))


class _Column:
    """One attribute of many events; a test is put once to each distinct value."""

    def __init__(self, values: Sequence[Any]) -> None:
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
        self._distinct = list(places)
        self._places = np.array([places[value] for value in values], dtype=np.intp)

    def ask(self, test: Test) -> npt.NDArray[np.bool_]:
        answers = np.fromiter(map(test, self._distinct), dtype=np.bool_, count=len(self._distinct))
        return answers[self._places]


class Events:
    """Many events of one schema, asked together which of them match a filter."""

    def __init__(self, events: Sequence[Values], schema: Schema) -> None:
        self.events = events
        self._schema = schema
        self._columns = {name: _Column([event.get(name, MISSING) for event in events]) for name in schema}

    def __len__(self) -> int:
        return len(self.events)

    def matching(self, written: Mapping[str, Any] | None) -> npt.NDArray[np.bool_]:
        """One truth value an event; the same as `matches` of each, which a test compares."""
        found = np.ones(len(self), dtype=np.bool_)
        for key, part in (written or {}).items():
            if key == "$any":
                found &= np.logical_or.reduce([self.matching(branch) for branch in part])
            elif key == "$all":
                found &= np.logical_and.reduce([self.matching(branch) for branch in part])
            elif key == "$not":
                found &= ~self.matching(part)
            else:
                found &= self._columns[key].ask(condition(part, self._schema[key]))
        return found
