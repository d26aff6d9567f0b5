"""Estimates the time of a filter's exact predicate per event, in seconds of an ordinary machine.

The estimate decides where a predicate is evaluated (`edn_server.ingest.undecided`), never its result. It must
not be far too low for a filter that is written to be slow.
"""

from __future__ import annotations

from dataclasses import dataclass

from edn.model.event_check import MAX_ELEMENTS
from edn.model.filter import regex
from edn.model.filter.ast import All, AnyOf, Not, children
from edn.model.filter.binding import BoundEach, BoundNode, BoundTest, BoundXPath
from edn.model.xpath.expression import MAX_TEXT

#: seconds per test, per compared byte of a literal, and per byte of text searched for one pattern
TEST = 2e-7
LITERAL = 2e-10
SEARCH = 3e-10
#: seconds per byte of text and step of a regular expression whose states do not fit into its memory
SCAN = 1.5e-8
#: seconds per step of an XPath as `edn.model.xpath.cost` counts them, and per byte of an event as XML
STEP = 6e-8
XML = 2e-8


@dataclass(frozen=True, slots=True)
class Cost:
    #: number of tests; each value of an `in` counts
    tests: int = 0
    #: bytes of their literals
    literals: int = 0
    #: number of patterns that are searched for
    searches: int = 0
    #: steps of XPaths, for an event with the maximal amount of text
    steps: float = 0.0
    #: number of tests of each element of an array
    element_tests: int = 0
    #: steps of regular expressions
    scanned: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.tests + other.tests,
            self.literals + other.literals,
            self.searches + other.searches,
            self.steps + other.steps,
            self.element_tests + other.element_tests,
            self.scanned + other.scanned,
        )

    def seconds(self, size: int) -> float:
        """Estimates one evaluation of an event with `size` bytes."""
        total = self.tests * TEST + min(self.literals, self.tests * size) * LITERAL
        total += self.searches * size * SEARCH + self.scanned * size * SCAN
        total += self.element_tests * TEST * min(MAX_ELEMENTS, size / 2)
        if self.steps:
            total += XML * size + self.steps * STEP * min(1.0, (size + 4096) / MAX_TEXT)
        return total


def cost_of(node: BoundNode) -> Cost:
    match node:
        case BoundTest(test=test, keys=keys):
            literals = sum(len(key) for key in keys if isinstance(key, str | bytes))
            scanned = regex.steps(str(keys[0])) if test.operator == "matches" else 0
            searches = int(test.operator == "contains")
            return Cost(max(1, len(keys)), literals, searches, scanned=scanned)
        case All(parts) | AnyOf(parts):
            return sum((cost_of(part) for part in parts), Cost(1))
        case Not(part):
            return cost_of(part)
        case BoundXPath(steps=steps):
            return Cost(1, steps=steps)
        case BoundEach(part=part):
            each = cost_of(part)
            # All elements together are not longer than the event.
            return Cost(1, each.literals, each.searches, element_tests=1 + each.tests, scanned=each.scanned)


def patterns_of(node: BoundNode) -> dict[str, set[str]]:
    """Collects the strings that are searched for in each attribute."""
    found: dict[str, set[str]] = {}
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, BoundTest):
            if one.test.operator == "contains":
                found.setdefault(one.test.attribute, set()).add(str(one.keys[0]))
        elif not isinstance(one, BoundEach):  # elements are searched one by one
            pending.extend(children(one))
    return found
