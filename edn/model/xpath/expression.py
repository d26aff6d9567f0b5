"""The tree of an XPath 1.0 expression, and its text."""

from __future__ import annotations

from dataclasses import dataclass

#: bytes of text in an event: at most those of a request
MAX_TEXT = 1 << 20
#: supported axes; the XML form of an event has no namespaces of its own
AXES = frozenset(
    [
        "ancestor",
        "ancestor-or-self",
        "attribute",
        "child",
        "descendant",
        "descendant-or-self",
        "following",
        "following-sibling",
        "parent",
        "preceding",
        "preceding-sibling",
        "self",
    ]
)
#: name → minimal and maximal number of arguments
FUNCTIONS: dict[str, tuple[int, int]] = {
    "boolean": (1, 1),
    "ceiling": (1, 1),
    "concat": (2, 16),
    "contains": (2, 2),
    "count": (1, 1),
    "false": (0, 0),
    "floor": (1, 1),
    "lang": (1, 1),
    "last": (0, 0),
    "local-name": (0, 1),
    "name": (0, 1),
    "namespace-uri": (0, 1),
    "normalize-space": (0, 1),
    "not": (1, 1),
    "number": (0, 1),
    "position": (0, 0),
    "round": (1, 1),
    "starts-with": (2, 2),
    "string": (0, 1),
    "string-length": (0, 1),
    "substring": (2, 3),
    "substring-after": (2, 2),
    "substring-before": (2, 2),
    "sum": (1, 1),
    "translate": (3, 3),
    "true": (0, 0),
}
#: functions whose argument is a set of nodes
NODE_FUNCTIONS = frozenset({"count", "sum", "local-name", "name", "namespace-uri"})
#: node tests that look like functions
KINDS = frozenset({"node", "text", "comment"})


@dataclass(frozen=True, slots=True)
class Number:
    #: as written
    text: str


@dataclass(frozen=True, slots=True)
class String:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Binary:
    """`or and = != < <= > >= + - * div mod |`"""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Negative:
    part: Expression


@dataclass(frozen=True, slots=True)
class Step:
    axis: str
    #: a local name, `*`, or a kind such as `text()`
    test: str
    predicates: tuple[Expression, ...] = ()
    #: whether the name is in the namespace of events
    qualified: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    #: first expression; None is the context, or the document if `absolute`
    start: Expression | None
    #: predicates of the start
    predicates: tuple[Expression, ...]
    absolute: bool
    steps: tuple[Step, ...]


Expression = Number | String | Call | Binary | Negative | Path


def gives_nodes(expression: Expression) -> bool:
    """Tells whether the value is a set of nodes; without variables the type is static."""
    return isinstance(expression, Path) or (isinstance(expression, Binary) and expression.operator == "|")


def write(expression: Expression) -> str:
    """Writes an expression with brackets around every operation; parsing it gives the same tree."""
    match expression:
        case Number(text):
            return text
        case String(text):
            return f"'{text}'" if '"' in text else f'"{text}"'
        case Call(name, arguments):
            return f"{name}({', '.join(map(write, arguments))})"
        case Binary(operator, left, right):
            return f"({write(left)} {operator} {write(right)})"
        case Negative(part):
            return f"(- {write(part)})"
        case Path():
            return _write_path(expression)


def _write_path(path: Path) -> str:
    steps = "/".join(map(_write_step, path.steps))
    if path.start is None:
        return f"/{steps}" if path.absolute else steps
    whole = f"({write(path.start)})" + _write_predicates(path.predicates)
    return f"{whole}/{steps}" if steps else whole


def _write_step(step: Step) -> str:
    name = f"e:{step.test}" if step.qualified else step.test
    return f"{step.axis}::{name}{_write_predicates(step.predicates)}"


def _write_predicates(predicates: tuple[Expression, ...]) -> str:
    return "".join(f"[{write(one)}]" for one in predicates)
