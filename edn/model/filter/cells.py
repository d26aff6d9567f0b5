"""Cells: sets of values of one attribute, including missing, with patterns of its strings.

Equality, order, prefixes and their negations are unions of intervals, which can be computed exactly.
Suffixes, substrings and regular expressions are kept as patterns beside the intervals. Suffixes and
substrings are compared by implication between their literals, as far as that decides; regular expressions
only by equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edn.model.coordinates import Domain, String
from edn.model.filter.intervals import (
    Interval,
    Intervals,
    common_prefix,
    complement,
    everything,
    intersection,
    is_single,
    union,
)
from edn.model.filter.regex import searcher
from edn.model.rect import LOWEST, MISSING

#: maximal number of patterns that are compared in pairs
_COMPARED = 64


class Pattern(NamedTuple):
    #: suffix, contains or matches
    kind: str
    text: str
    #: False if the string must not fit
    wanted: bool

    def holds(self, value: str) -> bool:
        match self.kind:
            case "suffix":
                fits = value.endswith(self.text)
            case "contains":
                fits = self.text in value
            case _:
                fits = searcher(self.text)(value)
        return fits == self.wanted

    def implies_fit(self, other: Pattern) -> bool:
        """Tells whether every string that fits this pattern (wanted or not) fits the other."""
        if "matches" in (self.kind, other.kind):
            return self[:2] == other[:2] or (other.kind != "matches" and not other.text)
        if other.kind == "contains":
            return other.text in self.text
        return (self.kind == "suffix" and self.text.endswith(other.text)) or not other.text


@dataclass(frozen=True, slots=True)
class Cell:
    """A set of values: those in the intervals that fit every pattern, and possibly missing."""

    domain: Domain
    intervals: Intervals
    #: whether the attribute may be missing
    missing: bool
    patterns: frozenset[Pattern] = frozenset()

    @classmethod
    def fitting(cls, domain: String, pattern: Pattern, *, missing: bool) -> Cell:
        whole = cls(domain, everything(domain), missing)
        return whole.meet(cls(domain, everything(domain), missing, frozenset((pattern,))))

    @property
    def empty(self) -> bool:
        return not self.intervals and not self.missing

    @property
    def lowest(self) -> float:
        """Coordinate of the lower end, to sort by."""
        if self.missing:
            return MISSING
        return self.domain.closed(*self.intervals[0])[0] if self.intervals else LOWEST

    @classmethod
    def common(cls, cells: Sequence[Cell]) -> Cell:
        """Intersects cells of one column; all at once, so that patterns are simplified only once."""
        if len(cells) == 1:
            return cells[0]
        domain = cells[0].domain
        patterns = frozenset(pattern for cell in cells for pattern in cell.patterns)
        # Pairwise, so that a long set is not traversed for each of many short ones.
        sets = [cell.intervals for cell in cells]
        while len(sets) > 1:
            odd = sets[-1:] if len(sets) % 2 else []
            sets = [intersection(sets[at], sets[at + 1]) for at in range(0, len(sets) - 1, 2)] + odd
        intervals = sets[0]
        if patterns and isinstance(domain, String):
            intervals, patterns = _simplified(domain, intervals, patterns)
        return cls(domain, intervals, all(cell.missing for cell in cells), patterns)

    def meet(self, other: Cell) -> Cell:
        return Cell.common((self, other))

    def work(self, other: Cell) -> int:
        """Estimates the comparisons of an intersection with another cell."""
        intervals = len(self.intervals) + len(other.intervals)
        patterns = len(self.patterns) + len(other.patterns)
        return intervals * (1 + patterns) + min(patterns, _COMPARED) ** 2

    def join(self, other: Cell) -> Cell:
        """Returns a cell that contains both; exactly their union if their patterns are equal."""
        return Cell(
            self.domain,
            union(self.intervals + other.intervals),
            self.missing or other.missing,
            self.patterns & other.patterns,
        )

    def complement(self) -> Cell:
        """Returns the complement of a single test's cell: intervals, or one pattern over all strings."""
        if not self.patterns:
            return Cell(self.domain, complement(self.domain, self.intervals), not self.missing)
        (pattern,) = self.patterns
        flipped = pattern._replace(wanted=not pattern.wanted)
        return Cell(self.domain, everything(self.domain), not self.missing, frozenset((flipped,)))


def _simplified(
    domain: String, intervals: Intervals, patterns: frozenset[Pattern]
) -> tuple[Intervals, frozenset[Pattern]]:
    """Simplifies a set: tests single strings, detects contradictions, drops redundant patterns."""
    if _contradict(patterns):
        return (), frozenset()
    kept: list[Interval] = []
    needed: set[Pattern] = set()
    for interval in intervals:
        if is_single(domain, interval):
            value = interval[0].decode()
            if all(pattern.holds(value) for pattern in patterns):
                kept.append(interval)
            continue
        fitted = Pattern("prefix", common_prefix(domain, interval), True)
        decided = [pattern for pattern in patterns if fitted.implies_fit(pattern)]
        if all(pattern.wanted for pattern in decided):
            kept.append(interval)
            needed |= patterns.difference(decided)
    # A pattern that only some intervals need holds for the others by implication.
    return tuple(kept), frozenset(needed)


def _contradict(patterns: frozenset[Pattern]) -> bool:
    if len(patterns) < 2 or len(patterns) > _COMPARED:
        return False
    wanted = [pattern for pattern in patterns if pattern.wanted]
    unwanted = [pattern for pattern in patterns if not pattern.wanted]
    if any(one.implies_fit(other) for one in wanted for other in unwanted):
        return True
    endings = sorted((pattern.text for pattern in wanted if pattern.kind == "suffix"), key=len)
    return any(not endings[-1].endswith(ending) for ending in endings)
