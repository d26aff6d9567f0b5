"""Binds filters to a schema: checks names and types, and converts literals.

A bound tree has the shape of the filter's tree; each test has its column, its domain and its operands as
keys. The exact predicate (`predicate`) and the sets of values (`normal`, for an XPath only a cover) are
derived from it independently. A condition on the elements of an array is not a set of values of its column:
it is covered by all arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edn.errors import InvalidFilter
from edn.model.coordinates import Array, Domain, Key, String, is_array
from edn.model.filter.ast import (
    ORDER_OPERATORS,
    STRING_OPERATORS,
    All,
    AnyOf,
    Each,
    Node,
    Not,
    Test,
    XPath,
    contradiction,
    exclude,
)
from edn.model.filter.boxes import Leaf, Normal
from edn.model.filter.cells import Cell, Pattern
from edn.model.filter.intervals import Intervals, complement, everything, one_interval, single, union
from edn.model.filter.regex import searcher
from edn.model.messages import unknown_attribute
from edn.model.schema import Schema

#: name → key, of the attribute's type
Values = Mapping[str, Any]
Predicate = Callable[[Values], bool]


@dataclass(frozen=True, slots=True)
class BoundTest:
    column: int
    domain: Domain
    test: Test
    #: operands; none for `exists`
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class BoundXPath:
    path: XPath
    #: exact predicate
    holds: Predicate
    #: condition that holds wherever the XPath holds
    cover: BoundNode
    #: maximal steps of one evaluation, as `edn.model.xpath.cost` counts them
    steps: float = 0.0


@dataclass(frozen=True, slots=True)
class BoundEach:
    column: int
    domain: Array
    each: Each
    #: on an element, under the attribute's name
    part: BoundNode


BoundNode = BoundTest | BoundEach | BoundXPath | All["BoundNode"] | AnyOf["BoundNode"] | Not["BoundNode"]


def bind(node: Node | None, schema: Schema) -> BoundNode:
    """Binds a tree to a schema; raises `InvalidFilter` with the place."""
    match node:
        case None:
            return All(())
        case Test():
            return _bind_test(node, schema)
        case Each():
            return _bind_each(node, schema)
        case All(parts):
            return _checked_all(tuple(bind(part, schema) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(bind(part, schema) for part in parts))
        case Not(part):
            return Not(bind(part, schema))
        case XPath():
            return _bind_xpath(node, schema)


def _bind_xpath(node: XPath, schema: Schema) -> BoundXPath:
    # Imported here because lxml is large and most filters do not need it.
    from edn.model.xpath import covering, parsing
    from edn.model.xpath.cost import check
    from edn.model.xpath.evaluation import Evaluation

    # The XML form has no arrays, so that a name occurs once among siblings.
    types = {name: type_ for name, type_ in schema.types.items() if not is_array(type_)}
    try:
        expression = parsing.parse(node.text)
        document = covering.tree_of(types)
        steps = check(expression, covering.count_nodes(document))
        holds = Evaluation(expression, types)
    except InvalidFilter as error:
        error.pointer = node.pointer
        raise
    return BoundXPath(node, holds, bind(covering.cover(expression, document), schema), steps)


def _bind_test(test: Test, schema: Schema) -> BoundTest:
    column, domain = _column(test, schema)
    if test.operator == "exists":
        return BoundTest(column, domain, test, ())
    if isinstance(domain, Array):
        raise test.place.wrong(
            f'a condition on attribute "{test.attribute}", {domain.noun}, must be any, all or exists, '
            f"got {test.operator}"
        )
    return _bind_operands(test, column, domain)


def _bind_each(node: Each, schema: Schema) -> BoundEach:
    column, domain = _column(node, schema)
    if not isinstance(domain, Array):
        raise node.place.wrong_operand(
            f'{node.quantifier} applies to arrays only, but attribute "{node.attribute}" is {domain.noun}'
        )
    return BoundEach(column, domain, node, _bind_part(node.part, column, domain.element))


def _bind_part(node: Node, column: int, domain: Domain) -> BoundNode:
    """Binds a condition on an element to the domain of the elements."""
    match node:
        case Test():
            return _bind_operands(node, column, domain)
        case All(parts):
            return _checked_all(tuple(_bind_part(part, column, domain) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_bind_part(part, column, domain) for part in parts))
        case Not(part):
            return Not(_bind_part(part, column, domain))
    raise AssertionError(f"no condition on an element: {node}")


def _checked_all(parts: tuple[BoundNode, ...]) -> BoundNode:
    _check_bounds(part for part in parts if isinstance(part, BoundTest))
    return All(parts)


def _column(node: Test | Each, schema: Schema) -> tuple[int, Domain]:
    column = schema.column_of(node.attribute)
    if column is None:
        raise node.place.wrong(unknown_attribute(node.attribute, list(schema.types)))
    return column, schema.columns[column].domain


def _bind_operands(test: Test, column: int, domain: Domain) -> BoundTest:
    name, operator = test.attribute, test.operator
    if operator in STRING_OPERATORS and domain.name != "string":
        raise test.place.wrong_operand(
            f'{operator} applies to strings only, but attribute "{name}" is {domain.noun}'
        )
    if operator in ORDER_OPERATORS and domain.name == "boolean":
        raise test.place.wrong_operand(
            f'{operator} does not apply to booleans, which have no order, but attribute "{name}" is a boolean'
        )
    keys: list[Key] = []
    for index, literal in enumerate(test.literals):
        try:
            keys.append(domain.key(literal))
        except ValueError as error:
            raise test.place.wrong_operand(
                f'the value for attribute "{name}" must be {domain.noun}, {error}',
                index if isinstance(test.operand, tuple) else None,
            ) from None
    if operator == "between" and exclude("gte", keys[0], "lte", keys[1]):
        lo, hi = test.literals
        raise test.place.wrong_operand(f"between must have lo <= hi, got {lo!r} > {hi!r}")
    if operator == "matches":
        try:
            searcher(str(keys[0]))
        except ValueError as error:
            raise test.place.wrong_operand(f"matches must be {error}") from None
    return BoundTest(column, domain, test, tuple(keys))


def _check_bounds(tests: Iterable[BoundTest]) -> None:
    """Rejects bounds of one operator object that exclude each other; only now strings are known as times."""
    lower: dict[str, list[BoundTest]] = {}
    upper: dict[str, list[BoundTest]] = {}
    for bound in tests:
        group = bound.test.place.group
        if group is not None and not bound.test.negated and bound.test.operator in ("gt", "gte", "lt", "lte"):
            side = lower if bound.test.operator in ("gt", "gte") else upper
            side.setdefault(group, []).append(bound)
    for group, ones in lower.items():
        for one in ones:
            for other in upper.get(group, ()):
                if exclude(one.test.operator, one.keys[0], other.test.operator, other.keys[0]):
                    detail = contradiction(
                        one.test.operator, one.test.operand, other.test.operator, other.test.operand
                    )
                    raise InvalidFilter(detail, pointer=group)


def predicate(node: BoundNode) -> Predicate:
    """Builds the exact predicate as nested closures."""
    match node:
        case BoundTest():
            return _test_predicate(node)
        case Not(part):
            inner = predicate(part)
            return lambda values: not inner(values)
        case BoundXPath(holds=holds):
            return holds
        case BoundEach():
            return _each_predicate(node)
        case All(parts):
            wanted = tuple(map(predicate, parts))
            if not wanted:
                return lambda values: True
            if len(wanted) == 2:
                one, two = wanted
                return lambda values: one(values) and two(values)

            def every(values: Values) -> bool:
                for part in wanted:  # `all` over a generator takes twice as long  # noqa: SIM110
                    if not part(values):
                        return False
                return True

            return every
        case AnyOf(parts):
            alternatives = tuple(map(predicate, parts))

            def some(values: Values) -> bool:
                for part in alternatives:  # `any` over a generator takes twice as long  # noqa: SIM110
                    if part(values):
                        return True
                return False

            return some


def _each_predicate(bound: BoundEach) -> Predicate:
    name, holds = bound.each.attribute, predicate(bound.part)
    # Some element satisfies the part, or none fails it; negated, the other way round.
    sought = bound.each.quantifier == "any"
    found = sought != bound.each.negated

    def decide(values: Values) -> bool:
        array = values.get(name)
        if array is None:
            return False
        for element in array:
            if holds({name: element}) == sought:
                return found
        return not found

    return decide


def _test_predicate(bound: BoundTest) -> Predicate:
    if bound.test.negated:
        name, holds = bound.test.attribute, _operator_predicate(bound)
        return lambda values: name in values and not holds(values)
    return _operator_predicate(bound)


def _operator_predicate(bound: BoundTest) -> Predicate:
    name = bound.test.attribute
    key: Any = bound.keys[0] if bound.keys else None
    match bound.test.operator:
        case "exists":
            return (
                (lambda values: name in values) if bound.test.operand else (lambda values: name not in values)
            )
        case "eq":
            return lambda values: values.get(name) == key
        case "ne":
            return lambda values: values.get(name, key) != key
        case "lt":
            return lambda values: name in values and values[name] < key
        case "lte":
            return lambda values: name in values and values[name] <= key
        case "gt":
            return lambda values: name in values and values[name] > key
        case "gte":
            return lambda values: name in values and values[name] >= key
        case "between":
            top: Any = bound.keys[1]
            return lambda values: name in values and key <= values[name] <= top
        case "in":
            keys = frozenset(bound.keys)
            return lambda values: values.get(name) in keys
        case "prefix":
            return lambda values: name in values and values[name].startswith(key)
        case "suffix":
            return lambda values: name in values and values[name].endswith(key)
        case "contains":
            return lambda values: name in values and key in values[name]
        case "matches":
            search = searcher(key)
            return lambda values: name in values and search(values[name])
    raise AssertionError(f"no operator {bound.test.operator}")


def normal(node: BoundNode, holds: bool = True) -> Normal:
    """Converts a tree, or its complement if `holds` is False, into cells without negations."""
    match node:
        case BoundTest():
            cell = _cell(node)
            return Leaf(node.column, cell if holds else cell.complement())
        case Not(part):
            return normal(part, not holds)
        case BoundXPath(cover=cover):
            # The complement of an XPath may be anywhere.
            return normal(cover) if holds else All(())
        case BoundEach(column, domain):
            # Wherever it holds the array is there; its complement may be anywhere.
            return Leaf(column, Cell(domain, everything(domain), False)) if holds else All(())
        case All(parts) | AnyOf(parts):
            inner = tuple(normal(part, holds) for part in parts)
            return All(inner) if isinstance(node, All) == holds else AnyOf(inner)


def _cell(bound: BoundTest) -> Cell:
    domain, operator, negated = bound.domain, bound.test.operator, bound.test.negated
    if operator == "exists":
        there = bound.test.operand is True
        return Cell(domain, everything(domain) if there else (), not there)
    if operator in ("suffix", "contains", "matches"):
        assert isinstance(domain, String)
        return Cell.fitting(domain, Pattern(operator, str(bound.keys[0]), not negated), missing=False)
    intervals = intervals_of(domain, operator, bound.keys)
    return Cell(domain, complement(domain, intervals) if negated else intervals, False)


def intervals_of(domain: Domain, operator: str, keys: Sequence[Key]) -> Intervals:
    """Returns the values that satisfy an operator; not for suffix and contains."""
    marks = [domain.mark(key) for key in keys]
    match operator:
        case "eq" | "in":
            if len(marks) == 1:
                return (single(domain, marks[0]),)
            return union(single(domain, mark) for mark in marks)
        case "ne":
            return complement(domain, (single(domain, marks[0]),))
        case "lt":
            return one_interval(domain.least, marks[0])
        case "lte":
            return one_interval(domain.least, domain.after(marks[0]))
        case "gt":
            return one_interval(domain.after(marks[0]), domain.end)
        case "gte":
            return one_interval(marks[0], domain.end)
        case "between":
            return one_interval(marks[0], domain.after(marks[1]))
        case "prefix":
            assert isinstance(domain, String)
            return one_interval(marks[0], domain.after_prefix(str(keys[0])))
    raise AssertionError(f"no operator {operator}")
