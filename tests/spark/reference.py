"""The greedy split by its description alone: sort, cut at every border, add up volumes in whole fractions.

Quadratic, in memory, and without a line of the product's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Sub:
    id: str
    lo: tuple[Fraction, ...]
    hi: tuple[Fraction, ...]


def subs(ids: Sequence[str], lo: Sequence[Sequence[float]], hi: Sequence[Sequence[float]]) -> list[Sub]:
    return [
        Sub(id, tuple(map(Fraction, low)), tuple(map(Fraction, high)))
        for id, low, high in zip(ids, lo, hi, strict=True)
    ]


def plan(everything: list[Sub], parts: int) -> list[list[str]]:
    """Ids part by part, in the order of the cuts. All bounds are finite."""
    d = len(everything[0].lo)
    floor = []
    for j in range(d):
        length = max(sub.hi[j] for sub in everything) - min(sub.lo[j] for sub in everything)
        power = Fraction(1)
        while power <= length:
            power *= 2
        while power / 2 > length:
            power /= 2
        # A side that is shorter than a millionth of the space counts as that.
        floor.append(power / 2**20)
    borders = [i * len(everything) // parts for i in range(parts + 1)]

    def volume(some: list[Sub]) -> Fraction:
        product = Fraction(1)
        for j in range(d):
            side = max(sub.hi[j] for sub in some) - min(sub.lo[j] for sub in some)
            product *= max(side, floor[j])
        return product

    def divide(some: list[Sub], first: int, last: int) -> list[list[str]]:
        if last - first == 1:
            return [[sub.id for sub in some]]
        best: tuple[Fraction, int, list[Sub], list[Sub]] | None = None
        for j in range(d):
            for key in (
                lambda sub, j=j: sub.lo[j],
                lambda sub, j=j: sub.hi[j],
                lambda sub, j=j: (sub.lo[j] + sub.hi[j]) / 2,
            ):
                ordered = sorted(some, key=lambda sub, key=key: (key(sub), sub.id))
                for border in range(first + 1, last):
                    left, right = (
                        ordered[: borders[border] - borders[first]],
                        ordered[borders[border] - borders[first] :],
                    )
                    cost = volume(left) + volume(right)
                    if best is None or cost < best[0]:
                        best = (cost, border, left, right)
        assert best is not None
        _, border, left, right = best
        return divide(left, first, border) + divide(right, border, last)

    return divide(everything, 0, parts)
