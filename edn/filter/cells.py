"""What one attribute may hold: a set of values, missing or not, and patterns that its strings fit.

Equality, order, prefixes and their negations are sets of intervals, so all is known about them. Suffixes and
substrings are not; they stay beside the set as patterns, and are compared with each other and with the set by
implication between their literals, as far as that decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from edn.coordinates import Domain, String
from edn.filter.intervals import (
    Interval,
    Intervals,
    common_prefix,
    complement,
    everything,
    intersection,
    is_single,
    union,
)
from edn.rect import LOWEST, MISSING

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

    def meet(self, other: Cell) -> Cell:
        intervals = intersection(self.intervals, other.intervals)
        patterns = self.patterns | other.patterns
        if patterns and isinstance(self.domain, String):
            intervals, patterns = _settled(self.domain, intervals, patterns)
        return Cell(self.domain, intervals, self.missing and other.missing, patterns)

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
