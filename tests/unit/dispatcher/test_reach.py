"""The report of dead subscriptions: equal to brute force, and kept incrementally."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dispatcher.advertisements.guard import BoundCache
from dispatcher.advertisements.reach import TopicReach
from dispatcher.store import advertisement_rows, directory, topic_rows
from dispatcher.store.advertisement_rows import Advertisement as Row
from dispatcher.store.directory import Subscription
from dispatcher.store.interface import Transaction
from dispatcher.store.sqlite.log import SqliteLog
from dispatcher.store.topic_rows import Topic
from edn.errors import EdnError
from edn.model.filter import Filter, boxes_of
from edn.model.filter.advertisement import Advertisement
from edn.model.filter.binding import bind
from edn.model.filter.filter import expanded_sides
from edn.model.schema import Schema
from edn.summary.overlap import Fields, Footprints, relate, relate_one
from edn.tools.checker.columns import Columns
from tests.workload.advertisements import Drawing

UID = 7


def with_log(folder: Path, work: Callable[[SqliteLog], Awaitable[None]]) -> None:
    async def main() -> None:
        log = SqliteLog(folder)
        log.start()
        try:
            await work(log)
        finally:
            await log.stop()

    asyncio.run(main())


def put_subscription(transaction: Transaction, id: str, version: int, filter: Any) -> None:
    row = Subscription(id, version, "o", UID, filter, "http://h/", None, None, "s1", 0)
    directory.insert(transaction.connection, row, frozenset())


def put_advertisement(transaction: Transaction, id: str, version: int, given: Any) -> None:
    advertisement_rows.insert(transaction, Row(id, version, UID, "p", given, None, 0))


def test_plain_filters_have_the_boxes_of_their_trees() -> None:
    drawing = Drawing(random.Random(5))
    schema = Schema.parse(drawing.schema)
    compared = 0
    for _ in range(1_000):
        written = drawing.filter()
        try:
            filter = Filter.parse(written)
            root = bind(filter.root, schema)
        except EdnError:
            continue
        if written is not None:
            assert boxes_of(written, schema) == expanded_sides(root, exact=not filter.is_covered), written
            compared += 1
    assert compared > 500


def test_the_report_is_brute_force_after_every_change(tmp_path: Path) -> None:
    chance = random.Random(3)
    drawing = Drawing(chance)
    schema = Schema.parse(drawing.schema)
    filters: dict[int, Any] = {}
    advertised: dict[str, Any] = {}

    def draw(make: Callable[[], Any], parse: Callable[[Any], Any]) -> Any:
        while True:
            given = make()
            try:
                parse(given)
            except EdnError:
                continue
            return given

    def new_filter() -> Any:
        return draw(drawing.filter, lambda one: Filter.parse(one).bind(schema))

    def new_advertisement() -> Any:
        return draw(lambda: drawing.advertisement(most=3), lambda one: Advertisement.parse(one).bind(schema))

    def expected() -> list[int]:
        bound = [Advertisement.parse(one).bind(schema) for one in advertised.values()]
        return [
            serial
            for serial, filter in filters.items()
            if bound and not any(one.overlaps(Filter.parse(filter).bind(schema)) for one in bound)
        ]

    async def work(log: SqliteLog) -> None:
        await log.submit(
            lambda transaction: topic_rows.insert(transaction, Topic(UID, "t", 1, schema, "bitmap", 0))
        )
        reach = TopicReach(UID, BoundCache())
        reader = log.connect_reader()
        found = 0
        for step in range(60):
            number = step + 1

            def change(transaction: Transaction, number: int = number) -> None:
                for place in range(3):
                    given = new_filter()
                    put_subscription(transaction, f"s{number}.{place}", number, given)
                    found = directory.find(transaction.connection, f"s{number}.{place}")
                    assert found is not None
                    filters[found.serial] = given
                if filters and chance.random() < 0.4:
                    serial = chance.choice(list(filters))
                    del filters[serial]
                    transaction.connection.execute("DELETE FROM subscriptions WHERE serial = ?", (serial,))
                if advertised and chance.random() < 0.5:
                    id = chance.choice(list(advertised))
                    del advertised[id]
                    row = advertisement_rows.find(transaction.connection, id)
                    assert row is not None
                    advertisement_rows.delete(transaction, row)
                else:
                    advertised[f"a{number}"] = given = new_advertisement()
                    put_advertisement(transaction, f"a{number}", number, given)

            await log.submit(change)
            assert reach.update(reader, 1) is bool(advertised)
            dead = reach.dead().tolist() if advertised else []
            assert dead == expected()
            found += len(dead)
            if advertised:
                id = chance.choice(list(advertised))
                bound = Advertisement.parse(advertised[id]).bind(schema)
                listeners = sum(bound.overlaps(Filter.parse(one).bind(schema)) for one in filters.values())
                # Covers count, too, where only a predicate decides.
                assert reach.overlapping(id) >= listeners
        assert found > 100
        reader.close()

    with_log(tmp_path, work)


def test_only_subscriptions_whose_witness_ends_are_compared_again(tmp_path: Path) -> None:
    schema = Schema.parse({"n": "integer"})

    async def work(log: SqliteLog) -> None:
        def begin(transaction: Transaction) -> None:
            topic_rows.insert(transaction, Topic(UID, "t", 1, schema, "bitmap", 0))
            for number in range(100):
                put_subscription(transaction, f"s{number}", number + 1, {"n": number})
            for number in range(50):
                put_advertisement(transaction, f"a{number}", number + 1, {"n": [number]})

        await log.submit(begin)
        reach = TopicReach(UID, BoundCache())
        reader = log.connect_reader()
        reach.update(reader, 1)
        assert (len(reach.dead()), reach.compared) == (50, 100)

        def end(transaction: Transaction) -> None:
            row = advertisement_rows.find(transaction.connection, "a7")
            assert row is not None
            advertisement_rows.delete(transaction, row)

        await log.submit(end)
        reach.update(reader, 1)
        assert (len(reach.dead()), reach.compared) == (51, 101)
        await log.submit(lambda transaction: put_advertisement(transaction, "b", 99, {"n": [7, 70]}))
        reach.update(reader, 1)
        # The dead ones are compared with the new advertisement only.
        assert (len(reach.dead()), reach.compared) == (49, 152)
        reader.close()

    with_log(tmp_path, work)


def test_buckets_hide_no_overlap() -> None:
    chance = random.Random(9)

    def sides(width: int) -> dict[int, list[tuple[float, float, bool]]]:
        found: dict[int, list[tuple[float, float, bool]]] = {}
        for column in chance.sample(range(width), chance.randint(0, width)):
            ends = sorted(chance.sample([-np.inf, *range(300), np.inf], 2 * chance.randint(1, 3)))
            bounds = zip(ends[::2], ends[1::2], strict=True)
            found[column] = [
                (float(lo), float(lo if chance.random() < 0.7 else hi), chance.random() < 0.8)
                for lo, hi in bounds
            ]
        return found

    def meets(mine: Any, theirs: Any) -> int:
        """Return how two products overlap, from the definition."""
        status = 2
        for column, some in mine.items():
            if column not in theirs:
                status = min(status, 2 if any(one[2] for one in some) else 1)
                continue
            pairs = [
                2 if one[2] and other[2] else 1
                for one in some
                for other in theirs[column]
                if one[0] <= other[1] and other[0] <= one[1]
            ]
            status = min(status, max(pairs, default=0))
        return status

    seen: Counter[int] = Counter()
    for count in (1, 3, 64, 65, 200):
        rows = [sides(3) for _ in range(count)]
        filters = [[sides(4) for _ in range(chance.randint(0, 3))] for _ in range(100)]
        fields, footprints = Fields.of(rows, 3), Footprints.of(filters)
        found, how = relate(footprints, np.arange(len(filters)), fields)
        for place, boxes in enumerate(filters):
            expected = [max((meets(box, row) for box in boxes), default=0) for row in rows]
            assert relate_one(footprints, place, fields).tolist() == expected
            assert how[place] == max(expected)
            assert found[place] == (expected.index(max(expected)) if max(expected) else -1)
            seen[max(expected)] += 1
    assert min(seen[0], seen[1], seen[2]) > 10, seen


def draw_event(chance: random.Random, given: dict[str, Any]) -> dict[str, Any]:
    """An event that an advertisement of the benchmark covers."""
    event: dict[str, Any] = {}
    for name, alternatives in given.items():
        if chance.random() < 0.15:
            continue
        one = chance.choice(alternatives) if alternatives != "any" else {"gte": 0, "lte": 120}
        if not isinstance(one, dict):
            event[name] = one
        elif name == "price":
            event[name] = chance.uniform(one["gte"], one["lte"])
        else:
            event[name] = chance.randrange(-100, one["lt"])
    return event


@pytest.mark.slow
def test_the_report_of_100_000_subscriptions_and_500_advertisements(tmp_path: Path) -> None:
    attributes = {"symbol": "string", "price": "number", "volume": "integer", "venue": "string"}
    schema = Schema.parse(attributes)
    chance = random.Random(7)

    def filter() -> dict[str, Any]:
        if chance.random() < 0.67:
            return {"symbol": f"S{chance.randrange(4000)}", "price": {"gt": chance.random() * 100}}
        low, high = sorted([chance.randrange(1000), chance.randrange(1000)])
        return {"volume": {"between": [low, high]}, "venue": chance.choice(["NYSE", "XETRA", "TSE", "LSE"])}

    def advertisement() -> dict[str, Any]:
        if chance.random() < 0.5:
            symbols = [f"S{chance.randrange(3000)}" for _ in range(4)]
            return {"symbol": symbols, "price": [{"gte": 0, "lte": chance.choice([50, 80])}]}
        return {
            "symbol": [f"S{chance.randrange(3000)}"],
            "volume": [{"lt": 1 + chance.randrange(400)}],
            "venue": ["NYSE", "TSE"],
            "price": "any",
        }

    async def work(log: SqliteLog) -> None:
        def begin(transaction: Transaction) -> None:
            topic_rows.insert(transaction, Topic(UID, "t", 1, schema, "bitmap", 0))
            for number in range(100_000):
                put_subscription(transaction, f"s{number}", number + 1, filter())
            for number in range(500):
                put_advertisement(transaction, f"a{number}", number + 1, advertisement())

        await log.submit(begin)
        reach = TopicReach(UID, BoundCache())
        reader = log.connect_reader()
        began, used = time.perf_counter(), time.process_time()
        reach.update(reader, 1)
        print(
            f"\nreport of 100,000 subscriptions and 500 advertisements: {time.perf_counter() - began:.2f} s, "
            f"{time.process_time() - used:.2f} s of CPU; {len(reach.dead()):,} dead"
        )
        walls, cpus = [], []
        for number in range(10):
            for more in (True, False):

                def change(transaction: Transaction, number: int = number, more: bool = more) -> None:
                    if more:
                        put_advertisement(transaction, f"b{number}", 10**6 + number, advertisement())
                    else:
                        row = advertisement_rows.find(transaction.connection, f"a{3 * number}")
                        assert row is not None
                        advertisement_rows.delete(transaction, row)

                await log.submit(change)
                began, used = time.perf_counter(), time.process_time()
                reach.update(reader, 1)
                walls.append(time.perf_counter() - began)
                cpus.append(time.process_time() - used)
        print(
            f"one advertisement more or less: at most {max(walls) * 1e3:.0f} ms, median "
            f"{np.median(walls) * 1e3:.0f} ms; CPU at most {max(cpus) * 1e3:.0f} ms"
        )
        afresh = TopicReach(UID, BoundCache())
        afresh.update(reader, 1)
        dead = reach.dead()
        assert (afresh.dead() == dead).all()
        given = [row.advertisement for row in advertisement_rows.of_topic(reader, UID, 1)]
        events = [draw_event(chance, chance.choice(given)) for _ in range(100_000)]
        for event in events:
            if "price" in event:
                event["price"] = float(event["price"])
        columns = Columns(attributes, events)
        wrong = 0
        for first in range(0, len(dead), 5_000):
            for _, written in directory.filters_of(reader, dead[first : first + 5_000].tolist()):
                wrong += len(columns.matching(written, 0, len(events))) > 0
        alive = np.setdiff1d(np.arange(1, 100_001), dead)[:5_000]
        hit = sum(
            len(columns.matching(written, 0, len(events))) > 0
            for _, written in directory.filters_of(reader, alive.tolist())
        )
        print(f"{len(dead):,} dead ones on 100,000 events: {wrong} false; {hit} of 5,000 others matched one")
        assert wrong == 0
        reader.close()

    with_log(tmp_path, work)
