"""Coordinates back to values, and rectangles as people read them.

A rectangle is shown in the words of a filter: `{"symbol": "GE", "price": {"gte": 30.5}}`. An attribute that
it does not constrain is left out. Strings lie on their axis by their first six bytes, so of a longer one only
the beginning is shown, with "…" for what follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edn.arrays import Floats
from edn.model.coordinates import DOMAINS, String, rfc3339
from edn.model.rect import LOWEST, MISSING

#: (name, type) in column order
Columns = Sequence[tuple[str, str]]

_MORE = "…"
_TIME = DOMAINS["time"]


def value_at(kind: str, coordinate: float, *, upper: bool = False) -> Any:
    """The value of a type that lies at a coordinate; of a string's upper bound, how what is below begins."""
    match kind:
        case "string":
            return _text(coordinate, upper=upper)
        case "time":
            # Rounded to a double, the last instant that there is may be none.
            return rfc3339(min(max(int(coordinate), _TIME.least), _TIME.end - 1))
        case "boolean":
            return coordinate >= 1
        case "integer":
            return int(coordinate)
    return float(coordinate)


def _text(coordinate: float, *, upper: bool) -> str:
    digits = []
    code = int(coordinate)
    for _ in range(String.SEEN):
        code, digit = divmod(code, 257)
        digits.append(digit)
    digits.reverse()
    whole = all(digits)
    if upper and digits[-1] == 256:
        while digits and digits[-1] == 256:
            digits.pop()
        return _decoded(digits) + _MORE
    return _decoded(digits) + (_MORE if whole else "")


def _decoded(digits: list[int]) -> str:
    return bytes(digit - 1 for digit in digits if digit).decode(errors="replace")


def shown_rect(columns: Columns, lo: Floats, hi: Floats) -> dict[str, Any]:
    """One rectangle, by attribute; those that it does not constrain are left out."""
    shown = {}
    for place, (name, kind) in enumerate(columns[: len(lo)]):
        side = _side(kind, float(lo[place]), float(hi[place]))
        if side is not None:
            shown[name] = side
    return shown


def _side(kind: str, lo: float, hi: float) -> Any:
    if lo == MISSING:
        if hi == MISSING:
            return {"exists": False}
        if hi == math.inf:
            return None
        # Of booleans, which have no order, only one has another above it.
        return {"eq" if kind == "boolean" else "lte": value_at(kind, hi, upper=True), "or": "missing"}
    if lo <= LOWEST and hi == math.inf:
        return {"exists": True}
    if lo == hi or (kind == "boolean" and hi == math.inf):
        return value_at(kind, lo)
    if kind == "boolean":
        return value_at(kind, hi)
    side: dict[str, Any] = {}
    if lo > LOWEST:
        side["gte"] = value_at(kind, lo)
    if hi < math.inf:
        side["lte"] = value_at(kind, hi, upper=True)
    return side
