"""Expressions of XPath from anywhere: refused in words, or taken; then cheap, sound and stable."""

from __future__ import annotations

import json
import time

import numpy as np

from edn.errors import EdnError, InvalidFilter, TooLarge
from edn.model.filter import Filter
from edn.model.schema import Schema
from edn.model.xpath.expression import write
from edn.model.xpath.parsing import parse

SCHEMA = Schema.parse(
    {
        "symbol": "string",
        "price": "number",
        "volume": "integer",
        "open": "boolean",
        "when": "time",
        "a.b": "string",
    }
)
EVENTS = [
    {
        "symbol": "GE",
        "price": 31.5,
        "volume": 3,
        "open": True,
        "when": "2030-01-31T09:00:00Z",
        "a": {"b": "x"},
    },
    {"symbol": "", "price": -0.0, "open": False},
    {"symbol": "a\u0001'\"" + "x" * 2000, "volume": -(2**63)},
    {},
]
BATCH = SCHEMA.decode_events(json.dumps(EVENTS).encode())
VALUES = [SCHEMA.values(body) for body in BATCH.bodies]
#: seconds: far above what the cost allows, far below what an attack would take
LONGEST = 5.0

SEEDS = [
    b"price > 30 and starts-with(symbol, 'G')",
    b"//price[. >= 3] | /e:event/*[position() = last()]",
    b"not(a/b = 'x') or count(//*) * 2 div 3 mod 4 - -1 <= sum(//volume)",
    b'descendant-or-self::node()/child::text()[contains(., "x")]',
    b"translate(concat(symbol, a/b), 'abc', 'ABC') != string(number('1.5'))",
]


def one(data: bytes) -> None:
    """One input."""
    text = data.decode("utf-8", "replace")
    try:
        tree = parse(text)
    except (InvalidFilter, TooLarge):
        return
    try:
        again = parse(write(tree))
    except TooLarge:  # brackets that the text did not need
        again = tree
    assert again == tree, "what was written is read as something else"
    try:
        bound = Filter.parse({"$xpath": text}).bind(SCHEMA)
    except EdnError as error:
        if not 400 <= error.status < 500:
            raise
        return
    rects = bound.rects()
    for values, point in zip(VALUES, BATCH.points, strict=True):
        began = time.process_time()
        holds = bound.matches(values)
        assert time.process_time() - began < LONGEST, "an evaluation took too long"
        if holds:
            assert np.any(np.all((rects.lo <= point) & (point <= rects.hi), axis=1)), "outside its rectangles"
