"""XPath 1.0 as a tree."""

from __future__ import annotations

from dataclasses import dataclass

#: the axes that an event has; its XML form has neither attributes nor namespaces of its own
AXES = frozenset(
    {
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
    }
)
#: name → (fewest, most) arguments
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
#: of these, those whose argument is a set of nodes
NODE_FUNCTIONS = frozenset({"count", "sum", "local-name", "name", "namespace-uri"})
#: node tests that look like functions
KINDS = frozenset({"node", "text", "comment"})


@dataclass(frozen=True, slots=True)
class Number:
    #: as it was written
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
    #: the name is of our namespace
    qualified: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    #: what it begins with; None: the context, or with `absolute` the document
    start: Expression | None
    #: predicates of the start
    predicates: tuple[Expression, ...]
    absolute: bool
    steps: tuple[Step, ...]


Expression = Number | String | Call | Binary | Negative | Path


def gives_nodes(expression: Expression) -> bool:
    """Whether the value is a set of nodes; in XPath 1.0 without variables that is known beforehand."""
    return isinstance(expression, Path) or (isinstance(expression, Binary) and expression.operator == "|")
