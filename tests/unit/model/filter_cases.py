"""Drawn events and filters that aim at the corners where coordinates merge values.

They are drawn from a seeded generator and not by Hypothesis, which is too slow for trees of this size; a
failure names its filters and its event.
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from edn.model.schema import Schema

TYPES = {"n": "number", "i": "integer", "s": "string", "b": "boolean", "t": "time"}
SCHEMA = Schema.parse(TYPES)

_BIG = 2**53
_MAX = 1.7976931348623157e308
CORNERS: dict[str, list[Any]] = {
    "n": [0.0, -0.0, 5e-324, -5e-324, 1.0, 1.0000000000000002, 2.0, 1e308, -1e308, _MAX, -_MAX],
    "i": [0, 1, 2, _BIG - 1, _BIG, _BIG + 1, _BIG + 2, -_BIG, -_BIG - 1, 2**63 - 1, -(2**63)],
    "s": [
        "", "\0", "a", "a\0", "ab", "abcde", "abcdef", "abcdef\0", "abcdefg", "abcdefh", "abcdeg", "b",
        "ab\U0010ffff", "\U0010ffff", "\U0010ffffx", "ba", "xab",
    ],
    "b": [True, False],
    "t": [
        "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000001Z", "9999-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59.999998Z", "0001-01-01T00:00:00Z", "2024-05-01T12:00:00+02:00",
        "2024-05-01T10:00:00.000000999Z",
    ],
}  # fmt: skip


def draw_expression(random: Random, text: str) -> str:
    """A regular expression that means the same in RE2 and in Python."""
    piece = re.escape(text[: random.randint(0, 3)])
    form = random.choice(["{}", "^{}", "{}\\b", "^[a-z]*{}", "({}|x)+", "{}[^a]", ".{}.", "[0-9]{{1,2}}{}"])
    return form.format(piece)


def draw_condition(random: Random, name: str) -> Any:
    """What could be said about an attribute."""

    def value() -> Any:
        return random.choice(CORNERS[name])

    kinds = ["literal", "list", "ne", "exists", "not"]
    if name != "b":
        kinds += ["lt", "lte", "gt", "gte"]
    if name in ("n", "i"):
        kinds.append("between")
    if name == "s":
        kinds += ["prefix", "suffix", "contains", "suffix", "contains", "matches"]
    match random.choice(kinds):
        case "literal":
            return value()
        case "list":
            return [value() for _ in range(random.randint(1, 4))]
        case "exists":
            return {"exists": random.random() < 0.5}
        case "not":
            return {"not": draw_condition(random, name)}
        case "between":
            return {"between": sorted((value(), value()))}
        case "matches":
            return {"matches": draw_expression(random, value())}
        case operator:
            return {operator: value()}


def draw_filter(random: Random, depth: int = 3) -> dict[str, Any]:
    kind = random.random()
    if depth == 0 or kind < 0.4:
        name = random.choice(list(TYPES))
        return {name: draw_condition(random, name)}
    if kind < 0.5:
        return {"$not": draw_filter(random, depth - 1)}
    parts = [draw_filter(random, depth - 1) for _ in range(random.randint(1, 4))]
    return {"$any" if kind < 0.7 else "$all": parts}


def draw_event(random: Random) -> dict[str, Any]:
    return {name: random.choice(values) for name, values in CORNERS.items() if random.random() < 0.8}


def decoded(given: list[dict[str, Any]]) -> tuple[npt.NDArray[np.float64], list[dict[str, Any]]]:
    """The points of events, and their values."""
    batch = SCHEMA.decode_events(json.dumps(given).encode())
    return batch.points, [SCHEMA.values(body) for body in batch.bodies]
