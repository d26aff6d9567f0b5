"""Estimates the time that the exact predicate of a filter may take for one event.

The estimate is in seconds of an ordinary machine. It decides where a predicate is evaluated
(`edn_server.ingest.undecided`), never what it says. It must not be far too low for a filter that is written
to be slow.
"""

from __future__ import annotations

from dataclasses import dataclass

from edn.model.filter.binding import BoundAll, BoundAny, BoundNode, BoundNot, BoundTest, BoundXPath
from edn.model.xpath.limits import TEXT

#: seconds: one test; a byte of a literal that is compared; a byte of text that is searched for one pattern
TEST = 2e-7
LITERAL = 2e-10
SEARCH = 3e-10
#: seconds: one step of an XPath as `edn.model.xpath.cost` counts them, and a byte of an event as XML
STEP = 6e-8
XML = 2e-8


@dataclass(frozen=True, slots=True)
class Cost:
    #: tests; each value of an `in` counts
    tests: int = 0
    #: bytes of their literals
    literals: int = 0
    #: patterns that are searched for in a text
    searches: int = 0
    #: steps of XPaths, of an event with as much text as there can be
    steps: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.tests + other.tests,
            self.literals + other.literals,
            self.searches + other.searches,
            self.steps + other.steps,
        )

    def seconds(self, size: int) -> float:
        """Estimate one evaluation, of an event of so many bytes."""
        total = self.tests * TEST + min(self.literals, self.tests * size) * LITERAL
        total += self.searches * size * SEARCH
        if self.steps:
            total += XML * size + self.steps * STEP * min(1.0, (size + 4096) / TEXT)
        return total


def cost_of(node: BoundNode) -> Cost:
    match node:
        case BoundTest(test=test, keys=keys):
            literals = sum(len(key) for key in keys if isinstance(key, str))
            return Cost(max(1, len(keys)), literals, int(test.operator == "contains"))
        case BoundAll(parts) | BoundAny(parts):
            return sum((cost_of(part) for part in parts), Cost(1))
        case BoundNot(part):
            return cost_of(part)
        case BoundXPath(steps=steps):
            return Cost(1, steps=steps)


def patterns_of(node: BoundNode) -> dict[str, set[str]]:
    """Collect the strings that are searched for in each attribute."""
    found: dict[str, set[str]] = {}
    open_ = [node]
    while open_:
        match open_.pop():
            case BoundTest(test=test, keys=keys):
                if test.operator == "contains":
                    found.setdefault(test.attribute, set()).add(str(keys[0]))
            case BoundAll(parts) | BoundAny(parts):
                open_.extend(parts)
            case BoundNot(part):
                open_.append(part)
    return found
