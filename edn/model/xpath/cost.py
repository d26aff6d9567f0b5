"""Bounds the cost of one evaluation before an expression is accepted.

Servers evaluate expressions while they match, so every evaluation must be short. Expressions that may take
too long are rejected when a subscription is created, not interrupted later.

Theory of operation
-------------------
The XML form of an event has at most `nodes` nodes and `MAX_TEXT` bytes of text, and a name occurs once among
siblings. Work is counted in visits of nodes:

    a child by name       one scan of the children, at most `nodes` for all contexts together; one node each
    a child by `*`        the same, and up to `nodes` nodes in total
    other axes            `nodes` per context; libxml2 merges the results of several contexts without
                          duplicates by comparing them all, `nodes` squared per context
    a predicate           its own cost per node that it is evaluated for
    two sets compared     each node with each
    reading text          `READING` visits for all text. The nodes that a predicate is evaluated for contain,
                          apart from nesting, no more text than that in total: each has a `share` of it

Functions that search one string in another are accepted only with a literal; concatenated strings may not
become longer than `LONGEST` times the text.
"""

from __future__ import annotations

from edn.errors import InvalidFilter
from edn.model.schema import MAX_PARTS
from edn.model.xpath.expression import (
    MAX_TEXT,
    Binary,
    Call,
    Expression,
    Negative,
    Number,
    Path,
    Step,
    String,
    gives_nodes,
)

#: visits that one evaluation may take; each is some ten nanoseconds
MAX_COST = 20_000_000
#: visits that reading all of the text is worth
READING = MAX_TEXT // 4
#: elements inside one another
NESTING = MAX_PARTS + 1
#: times the text that a string may be put together from it
LONGEST = 4

_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
#: functions that search for their second argument in the first, position by position
_SEARCHING = frozenset({"contains", "starts-with", "substring-before", "substring-after", "translate"})
#: functions that read their arguments as text, or the context if they have none
_READING = _SEARCHING | {"concat", "normalize-space", "number", "string", "string-length", "substring", "sum"}
_DOWNWARD = frozenset({"self", "child", "descendant", "descendant-or-self", "attribute"})
_NEAR = frozenset({"child", "self", "parent", "attribute"})


def check(expression: Expression, nodes: int) -> float:
    """Returns the steps of an evaluation over `nodes` nodes; raises `InvalidFilter` if there are too many."""
    _check_strings(expression)
    work = _cost(expression, nodes)
    if work > MAX_COST:
        raise InvalidFilter(
            f"an XPath must take at most {MAX_COST:.2g} steps per event of this topic, got up to {work:.2g}; "
            "name elements instead of searching for them (// and *), above all inside predicates"
        )
    return work


def _cost(expression: Expression, nodes: int, share: float = 1.0) -> float:
    """Counts the visits of one evaluation in a context with this share of the text."""
    match expression:
        case Number() | String():
            return 1.0
        case Negative(part):
            return 1.0 + _cost(part, nodes, share)
        case Binary(operator, left, right):
            both = _cost(left, nodes, share) + _cost(right, nodes, share)
            if operator == "|":
                return both + float(nodes) * nodes
            both += _reading(left, share) + _reading(right, share) + 1.0
            if operator in _COMPARISONS:
                return both + _size(left, nodes) * _size(right, nodes)
            return both
        case Call(name, arguments):
            inside = sum(_cost(one, nodes, share) for one in arguments)
            if name not in _READING:
                return 1.0 + inside
            read = sum(_reading(one, share) for one in arguments) if arguments else READING * share
            return 1.0 + inside + read * max(1.0, _literal_length(name, arguments))
        case Path():
            return _path_cost(expression, nodes, share)


def _reading(expression: Expression, share: float) -> float:
    """Counts the visits to read a value as text or number."""
    if not gives_nodes(expression):
        return READING * _length(expression)
    return READING * (share if _below(expression) else 1.0)


def _below(expression: Expression) -> bool:
    if isinstance(expression, Binary):
        return _below(expression.left) and _below(expression.right)
    return (
        isinstance(expression, Path)
        and expression.start is None
        and not expression.absolute
        and all(step.axis in _DOWNWARD for step in expression.steps)
    )


def _path_cost(path: Path, nodes: int, share: float) -> float:
    total, size = 1.0, 1.0
    text = share if _below(path) else 1.0
    if path.start is not None:
        total += _cost(path.start, nodes, share)
        size = _size(path.start, nodes)
        total += size * sum(_cost(one, nodes) for one in path.predicates)
    for step in path.steps:
        total += _scan(step, size, nodes)
        size = _after(step, size, nodes)
        each = text * min(1.0, NESTING / size)
        total += size * sum(_cost(one, nodes, each) for one in step.predicates)
    return total


def _scan(step: Step, size: float, nodes: int) -> float:
    return float(nodes) if step.axis in _NEAR or size <= 1 else size * nodes * nodes


def _after(step: Step, size: float, nodes: int) -> float:
    """Returns the maximal number of nodes after a step."""
    once = step.axis in _NEAR and (step.axis != "child" or step.test not in ("*", "node()"))
    return size if once else float(nodes)


def _size(expression: Expression, nodes: int) -> float:
    """Returns the maximal number of nodes of an expression; 1 if it is not a set."""
    match expression:
        case Binary("|", left, right):
            return min(float(nodes), _size(left, nodes) + _size(right, nodes))
        case Path():
            size = 1.0 if expression.start is None else _size(expression.start, nodes)
            for step in expression.steps:
                size = _after(step, size, nodes)
            return size
    return 1.0


def _literal_length(name: str, arguments: tuple[Expression, ...]) -> float:
    """Returns the comparisons per character of the text, for `translate`."""
    if name == "translate" and isinstance(arguments[1], String):
        return float(len(arguments[1].text))
    return 1.0


def _check_strings(expression: Expression) -> None:
    match expression:
        case Negative(part):
            _check_strings(part)
        case Binary(_, left, right):
            _check_strings(left)
            _check_strings(right)
        case Call(name, arguments):
            for one in arguments:
                _check_strings(one)
            if name in _SEARCHING and not all(isinstance(one, String) for one in arguments[1:]):
                raise InvalidFilter(
                    f"the second argument of {name} must be a literal, such as {name}(symbol, 'GE'…)"
                )
            if _length(expression) > LONGEST:
                raise InvalidFilter(f"concat must join at most {LONGEST} strings of the event")
        case Path(start, predicates, _, steps):
            if start is not None:
                _check_strings(start)
            for one in (*predicates, *(inner for step in steps for inner in step.predicates)):
                _check_strings(one)


def _length(expression: Expression) -> float:
    """Returns the length of a string in multiples of the event's text."""
    match expression:
        case Path() | Binary("|", _, _):
            return 1.0
        case Call("concat", arguments):
            return sum(map(_length, arguments))
        case Call("string" | "normalize-space", ()):
            return 1.0
        case Call(
            "string" | "normalize-space" | "translate" | "substring" | "substring-before" | "substring-after",
            arguments,
        ):
            return _length(arguments[0])
    return 0.0
