"""Bounds the cost of one evaluation before an expression is accepted.

An evaluation runs inside a server's matching, so it must end soon whatever the event: expressions that may
take too long are refused when they are given, not stopped when they are evaluated.

Theory of operation
-------------------
The XML form of an event has at most `nodes` nodes and `TEXT` bytes of text, and a name occurs once among
siblings. Work is counted in visits of nodes:

    a child by name       one scan of the children, at most `nodes` for all contexts together; one node each
    a child by `*`        the same, and up to `nodes` nodes in all
    other axes            `nodes` a context; results of several contexts are merged without duplicates, which
                          libxml2 does by comparing them all, `nodes` squared a context
    a predicate           its own cost for each node that it is asked of
    two sets compared     each node with each
    reading text          `READING` visits for all the text that there is. Below the nodes that a predicate is
                          asked of, all together, there is no more text than that, but for nesting: each has a
                          `share` of it

Functions that compare two strings by trying each place of one in the other are taken only if one of them is
a literal; strings that are put together may not become longer than `LONGEST` times the text.
"""

from __future__ import annotations

from edn.errors import InvalidFilter
from edn.model.schema import MAX_PARTS
from edn.model.xpath.expression import (
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
from edn.model.xpath.limits import TEXT

#: visits that one evaluation may take; each is some ten nanoseconds
MAX_COST = 20_000_000
#: visits that reading all of the text is worth
READING = TEXT // 4
#: elements inside one another
NESTING = MAX_PARTS + 1
#: times the text that a string may be put together from it
LONGEST = 4

_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
#: functions whose second argument is looked for in the first, place by place
_SEARCHING = frozenset({"contains", "starts-with", "substring-before", "substring-after", "translate"})
#: functions that read what they are given as text; without arguments, the context
_READING = frozenset(
    {
        "concat",
        "contains",
        "normalize-space",
        "number",
        "starts-with",
        "string",
        "string-length",
        "substring",
        "substring-after",
        "substring-before",
        "sum",
        "translate",
    }
)
_DOWNWARD = frozenset({"self", "child", "descendant", "descendant-or-self", "attribute"})
_NEAR = frozenset({"child", "self", "parent", "attribute"})


def check(expression: Expression, nodes: int) -> float:
    """Raise `InvalidFilter` if an evaluation over so many nodes may take too long; else return its steps."""
    _check_strings(expression)
    work = _cost(expression, nodes)
    if work > MAX_COST:
        raise InvalidFilter(
            f"the XPath may take {work:.2g} steps for one event of this topic; at most {MAX_COST:.2g} are "
            "taken: name elements instead of searching for them (// and *), above all inside predicates"
        )
    return work


def _cost(expression: Expression, nodes: int, share: float = 1.0) -> float:
    """Visits of one evaluation, in a context that has this share of the text below it."""
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
    """Of reading a value as text or number; a string that was put together is as long as what it is of."""
    if not gives_nodes(expression):
        return READING * _length(expression)
    return READING * (share if _below(expression) else 1.0)


def _below(expression: Expression) -> bool:
    """Whether a set of nodes lies in the context."""
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
    if step.axis in _NEAR:
        return float(nodes)
    return float(nodes) if size <= 1 else size * nodes * nodes


def _after(step: Step, size: float, nodes: int) -> float:
    """How many nodes there are after a step."""
    once = step.axis in _NEAR and (step.axis != "child" or step.test not in ("*", "node()"))
    return size if once else float(nodes)


def _size(expression: Expression, nodes: int) -> float:
    """How many nodes an expression may give; 1 for what is no set."""
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
    """Of `translate`, how many characters each one of the text is compared with."""
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
                raise InvalidFilter(f"what {name} looks for must be a literal, such as {name}(symbol, 'GE'…)")
            if _length(expression) > LONGEST:
                raise InvalidFilter(f"concat may put together at most {LONGEST} strings of the event")
        case Path(start, predicates, _, steps):
            if start is not None:
                _check_strings(start)
            for one in (*predicates, *(inner for step in steps for inner in step.predicates)):
                _check_strings(one)


def _length(expression: Expression) -> float:
    """The length of a string in parts of the text of an event."""
    match expression:
        case Path() | Binary("|", _, _):
            return 1.0
        case Call("concat", arguments):
            return sum(map(_length, arguments))
        case Call("string" | "normalize-space", ()):
            return 1.0
        case Call("string" | "normalize-space" | "translate" | "substring", arguments):
            return _length(arguments[0])
        case Call("substring-before" | "substring-after", arguments):
            return _length(arguments[0])
    return 0.0
