"""The compiled check of a publisher's events: equal to asking every advertisement."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np

from dispatcher.advertisements.guard import BoundCache, Coverage
from dispatcher.store.advertisement_rows import Advertisement as Row
from edn.errors import EdnError
from edn.model.filter.advertisement import Advertisement
from edn.model.schema import Schema
from edn.protocol.documents import cut_events
from tests.workload.advertisements import Drawing


def test_a_batch_is_covered_where_one_advertisement_covers_the_event() -> None:
    chance = random.Random(11)
    drawing = Drawing(chance)
    schema = Schema.parse(drawing.schema)
    covered = total = 0
    for round_ in range(40):
        rows: list[Row] = []
        while len(rows) < chance.randint(0, 6):
            given = drawing.advertisement(most=3)
            try:
                Advertisement.parse(given).bind(schema)
            except EdnError:
                continue
            rows.append(Row(f"a{round_}.{len(rows)}", 1, 1, "p", given, None, 0))
        coverage = Coverage.compile(schema, 1, rows, BoundCache())
        events = [drawing.event() for _ in range(50)]
        batch = schema.decode_events(msgspec.json.encode(events), cut_events)
        found = coverage.check(batch)
        for place, event in enumerate(events):
            values = schema.values(msgspec.json.encode(event))
            expected = any(one.matches(values) for one in coverage.bound)
            assert found[place] == expected, (event, [row.advertisement for row in rows])
            if not expected:
                pointer = coverage.explain(batch, place, "p", alone=False).pointer
                assert pointer is not None
                assert pointer.startswith(f"/{place}")
        covered, total = covered + int(np.count_nonzero(found)), total + len(events)
    assert 0.05 * total < covered < 0.95 * total


def test_long_strings_are_looked_up_and_not_tried_one_by_one() -> None:
    schema = Schema.parse({"symbol": "string", "n": "integer"})
    rows = [
        Row(f"a{number}", 1, 1, "p", {"symbol": [f"SYMBOL-{number:05d}"], "n": [{"gt": number}]}, None, 0)
        for number in range(300)
    ]
    rows.append(Row("b", 1, 1, "p", {"symbol": [{"suffix": "-x"}]}, None, 0))
    coverage = Coverage.compile(schema, 1, rows, BoundCache())
    assert coverage.lookup is not None
    assert coverage.lookup.attribute == "symbol"
    assert coverage.lookup.others.sum() == 1
    events = [
        ({"symbol": "SYMBOL-00007", "n": 8}, True),
        ({"symbol": "SYMBOL-00007", "n": 7}, False),
        ({"symbol": "SYMBOL-00300"}, False),
        ({"symbol": "SYMBOL-x"}, True),
        ({"n": 400}, True),
        ({}, True),
    ]
    batch = schema.decode_events(msgspec.json.encode([event for event, _ in events]), cut_events)
    assert coverage.check(batch).tolist() == [expected for _, expected in events]
    without = Coverage.compile(schema, 1, rows[:-1], BoundCache())
    assert without.lookup is not None
    assert not without.lookup.others.any()
    assert without.check(batch).tolist() == [True, False, False, False, True, True]


def test_values_that_are_looked_up_are_covered_where_one_advertisement_covers_the_event() -> None:
    """Every advertisement compares long strings of one attribute, which share their coordinate."""
    chance = random.Random(12)
    schema = Schema.parse({"symbol": "string", "n": "integer", "text": "string"})
    symbols = [f"SYMBOL-{number}" for number in range(8)] + ["S", "SYMBOL", ""]
    texts = ["", "short", "alarm clock", "alarm clocks", "a\n\u00e9"]
    others: list[Any] = ["any", [{"gt": 3}], [1, {"gt": 5, "lt": 8}], [2**53 + 1]]
    alternatives: list[Any] = ["any", ["alarm clock"], [{"suffix": "s"}], ["short", {"prefix": "alarm clo"}]]
    covered = total = 0
    for round_ in range(60):
        rows = []
        for number in range(chance.randint(1, 8)):
            given: dict[str, Any] = {"symbol": chance.choices(symbols, k=chance.randint(1, 3))}
            if chance.random() < 0.6:
                given["n"] = chance.choice(others)
            if chance.random() < 0.6:
                given["text"] = chance.choice(alternatives)
            rows.append(Row(f"a{round_}.{number}", 1, 1, "p", given, None, 0))
        coverage = Coverage.compile(schema, 1, rows, BoundCache())
        pools: dict[str, list[Any]] = {"symbol": symbols, "n": [0, 1, 4, 6, 2**53 + 1], "text": texts}
        events = [
            {name: chance.choice(pool) for name, pool in pools.items() if chance.random() < 0.7}
            for _ in range(60)
        ]
        batch = schema.decode_events(msgspec.json.encode(events), cut_events)
        found = coverage.check(batch).tolist()
        expected = [
            any(one.matches(schema.values(msgspec.json.encode(event))) for one in coverage.bound)
            for event in events
        ]
        assert found == expected, [row.advertisement for row in rows]
        covered, total = covered + sum(found), total + len(found)
    assert 0.1 * total < covered < 0.9 * total
