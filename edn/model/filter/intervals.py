"""Sets of values as sorted, disjoint, non-touching half-open intervals of marks (`edn.model.coordinates`)."""

from __future__ import annotations

from collections.abc import Iterable

from edn.model.coordinates import Domain, Mark, String

Interval = tuple[Mark, Mark]
Intervals = tuple[Interval, ...]


def union(intervals: Iterable[Interval]) -> Intervals:
    """Returns the canonical form of intervals, which may be empty or overlap."""
    joined: list[Interval] = []
    for lo, hi in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if joined and lo <= joined[-1][1]:
            if hi > joined[-1][1]:
                joined[-1] = (joined[-1][0], hi)
        else:
            joined.append((lo, hi))
    return tuple(joined)


def one_interval(lo: Mark, hi: Mark) -> Intervals:
    """Returns the canonical form of one interval, which may be empty."""
    return ((lo, hi),) if lo < hi else ()


def intersection(one: Intervals, other: Intervals) -> Intervals:
    common: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        lo = max(one[i][0], other[j][0])
        hi = min(one[i][1], other[j][1])
        if lo < hi:
            common.append((lo, hi))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def complement(domain: Domain, intervals: Intervals) -> Intervals:
    rest: list[Interval] = []
    start = domain.least
    for lo, hi in intervals:
        if start < lo:
            rest.append((start, lo))
        start = hi
    if start < domain.end:
        rest.append((start, domain.end))
    return tuple(rest)


def everything(domain: Domain) -> Intervals:
    return ((domain.least, domain.end),)


def single(domain: Domain, mark: Mark) -> Interval:
    return (mark, domain.after(mark))


def is_single(domain: Domain, interval: Interval) -> bool:
    return bool(interval[1] == domain.after(interval[0]))


def common_prefix(domain: String, interval: Interval) -> str:
    """Returns the common prefix of all strings of an interval; in rare cases a shorter one."""
    lo, hi = interval
    if hi == domain.end:
        return ""
    low: str = lo.decode()
    high: str = hi.decode()
    same = 0
    while same < min(len(low), len(high)) and low[same] == high[same]:
        same += 1
    longer = low[: same + 1]
    return longer if hi <= domain.after_prefix(longer) else low[:same]
