"""Converts coordinates back to values, and rectangles into a readable form.

A rectangle is written like a filter: `{"symbol": "GE", "price": {"gte": 30.5}}`, without unconstrained
attributes. A coordinate holds the first six bytes of a string, so a longer string ends with "…".
"""

from __future__ import annotations

import base64
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
    """Returns the value at a coordinate; for a string's upper bound, the prefix of strings below it."""
    match kind:
        case "string":
            return _text(coordinate, upper=upper)
        case "bytes":
            digits = _digits(coordinate)
            return base64.b64encode(_bytes(digits)).decode() + (_MORE if all(digits) else "")
        case "time":
            # Rounding to a double may exceed the last valid time.
            return rfc3339(min(max(int(coordinate), _TIME.least), _TIME.end - 1))
        case "boolean":
            return coordinate >= 1
        case "integer":
            return int(coordinate)
    return float(coordinate)


def _text(coordinate: float, *, upper: bool) -> str:
    digits = _digits(coordinate)
    whole = all(digits)
    if upper and digits[-1] == 256:
        while digits and digits[-1] == 256:
            digits.pop()
        return _decoded(digits) + _MORE
    return _decoded(digits) + (_MORE if whole else "")


def _digits(coordinate: float) -> list[int]:
    digits = []
    code = int(coordinate)
    for _ in range(String.CODED_BYTES):
        code, digit = divmod(code, 257)
        digits.append(digit)
    digits.reverse()
    return digits


def _bytes(digits: list[int]) -> bytes:
    return bytes(digit - 1 for digit in digits if digit)


def _decoded(digits: list[int]) -> str:
    return _bytes(digits).decode(errors="replace")


def shown_rect(columns: Columns, lo: Floats, hi: Floats) -> dict[str, Any]:
    """Describes a rectangle by its constrained attributes."""
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
        # Booleans have no order, and only `false` has a value above it.
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
