"""The market workload of the benchmarks (`edn.tools.bench.workloads`) as events and filters of a topic."""

from __future__ import annotations

from typing import Any

import numpy as np

from edn.arrays import Floats
from edn.tools.bench.workloads import MARKET_SYMBOLS, market_points, market_rectangles

TOPIC = "load.quotes"
ATTRIBUTES = {
    "symbol": "string",
    "venue": "string",
    "price": "number",
    "volume": "number",
    "change": "number",
    "second": "number",
}
BATCH = 100
#: symbols of crowded events
CROWDED = 20

_NUMBERS = tuple(name for name, kind in ATTRIBUTES.items() if kind == "number")
_LARGEST = float(np.finfo(np.float64).max)


def _symbol(number: float) -> str:
    return f"S{int(number):04d}"


def _venue(number: float) -> str:
    return f"V{int(number):02d}"


def quotes(rng: np.random.Generator, count: int, *, crowded: bool = False) -> list[dict[str, Any]]:
    """Draws events of the topic."""
    points = market_points(rng, count, symbols=CROWDED if crowded else MARKET_SYMBOLS)
    return [_quote(row) for row in points.tolist()]


def _quote(row: list[float]) -> dict[str, Any]:
    event: dict[str, Any] = {"symbol": _symbol(row[0]), "venue": _venue(row[1])}
    event.update(
        (name, round(value, 4)) for name, value in zip(_NUMBERS, row[2:], strict=True) if value > -_LARGEST
    )
    return event


def filters(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Draws filters of the topic."""
    lo, hi = market_rectangles(rng, count)
    return [_filter(low, high) for low, high in zip(lo, hi, strict=True)]


def _filter(lo: Floats, hi: Floats) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    for column, (name, spell) in enumerate((("symbol", _symbol), ("venue", _venue))):
        if np.isfinite(lo[column]):
            wanted[name] = spell(lo[column])
    for name, low, high in zip(_NUMBERS, lo[2:].tolist(), hi[2:].tolist(), strict=True):
        bounds = {}
        if low > -_LARGEST:
            bounds["gte"] = round(low, 4)
        if high < _LARGEST:
            bounds["lte"] = round(high, 4)
        if bounds:
            wanted[name] = bounds
    return wanted or {"symbol": _symbol(0)}
