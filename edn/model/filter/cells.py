"""Cells: a set of values of one attribute, missing or not, and patterns of its strings.

Equality, order, prefixes and their negations are sets of intervals, so all is known about them. Suffixes and
substrings are not; they stay beside the set as patterns, and are compared with each other and with the set by
implication between their literals, as far as that decides.
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
from edn.model.rect import LOWEST, MISSING

#: patterns that are compared in pairs; more are taken as they are
_COMPARED = 64


class Pattern(NamedTuple):
    #: suffix or contains
    kind: str
    text: str
    #: False: the string must not fit
    wanted: bool

    def holds(self, value: str) -> bool:
        fits = value.endswith(self.text) if self.kind == "suffix" else self.text in value
        return fits == self.wanted

    def implies_fit(self, other: Pattern) -> bool:
        """Whether every string that fits this one (wanted or not) fits the other."""
        if other.kind == "contains":
            return other.text in self.text
        return (self.kind == "suffix" and self.text.endswith(other.text)) or not other.text


@dataclass(frozen=True, slots=True)
class Cell:
    """The attribute is missing and may be, or it lies in the intervals and fits every pattern."""

    domain: Domain
    intervals: Intervals
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
        """The lower end as a coordinate, to sort by."""
        if self.missing:
            return MISSING
        return self.domain.closed(*self.intervals[0])[0] if self.intervals else LOWEST

    @classmethod
    def common(cls, cells: Sequence[Cell]) -> Cell:
        """What one or more cells of a column have in common.

        Patterns are settled once: one cell after the other, each would be compared again with every next one.
        """
        if len(cells) == 1:
            return cells[0]
        domain = cells[0].domain
        patterns = frozenset(pattern for cell in cells for pattern in cell.patterns)
        # In pairs, pairs of pairs, …: so that no long set is gone through for each of many short ones.
        sets = [cell.intervals for cell in cells]
        while len(sets) > 1:
            odd = sets[-1:] if len(sets) % 2 else []
            sets = [intersection(sets[at], sets[at + 1]) for at in range(0, len(sets) - 1, 2)] + odd
        intervals = sets[0]
        if patterns and isinstance(domain, String):
            intervals, patterns = _settled(domain, intervals, patterns)
        return cls(domain, intervals, all(cell.missing for cell in cells), patterns)

    def meet(self, other: Cell) -> Cell:
        return Cell.common((self, other))

    def work(self, other: Cell) -> int:
        """About how many comparisons it takes to meet the other."""
        intervals = len(self.intervals) + len(other.intervals)
        patterns = len(self.patterns) + len(other.patterns)
        return intervals * (1 + patterns) + min(patterns, _COMPARED) ** 2

    def join(self, other: Cell) -> Cell:
        """A cell that holds all of both; nothing else, if their patterns are the same."""
        return Cell(
            self.domain,
            union(self.intervals + other.intervals),
            self.missing or other.missing,
            self.patterns & other.patterns,
        )

    def complement(self) -> Cell:
        """Everything else; only of the cell of one test: a plain set, or one pattern over all strings."""
        if not self.patterns:
            return Cell(self.domain, complement(self.domain, self.intervals), not self.missing)
        (pattern,) = self.patterns
        flipped = pattern._replace(wanted=not pattern.wanted)
        return Cell(self.domain, everything(self.domain), not self.missing, frozenset((flipped,)))


def _settled(
    domain: String, intervals: Intervals, patterns: frozenset[Pattern]
) -> tuple[Intervals, frozenset[Pattern]]:
    """The same set, with single strings tried, contradictions emptied and idle patterns dropped."""
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
    # A pattern that only some of the intervals need holds for the others anyway.
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
