"""What is counted and remembered of delivery, over changes and restarts."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from serverkit import Kit, activate, control, item

from edn_server.delivery import attempts
from edn_server.delivery.attempts import MOST, Attempt, Attempts, RecentBodies
from edn_server.storage.writer import Call
from edn_server.subscriptions.counters import PAGE, Counts, VersionCounters

numbers = st.lists(st.integers(0, 3 * PAGE), max_size=20)


@given(st.lists(st.tuples(st.sampled_from(["matched", "delivered", "failed"]), numbers), max_size=8))
def test_counters_are_those_of_a_plain_count_also_after_they_were_written(
    steps: list[tuple[str, list[int]]],
) -> None:
    counted, plain = VersionCounters(), {kind: Counter[int]() for kind in ("matched", "delivered", "failed")}
    for kind, given_numbers in steps:
        getattr(counted, kind)(np.array(given_numbers, dtype=np.int32))
        plain[kind].update(given_numbers)
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE tallies (page INTEGER PRIMARY KEY, counts BLOB)")
        db.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value)")
        counted.save(db)
        again = VersionCounters()
        again.load(db)
    for number in {number for _, named in steps for number in named} | {0, PAGE}:
        expected = Counts(0, plain["matched"][number], plain["delivered"][number], plain["failed"][number])
        assert counted.totals([number], 1) == again.totals([number], 1) == expected


def counts(kit: Kit, id: str) -> tuple[int, int]:
    found = kit.registry.counters.totals(kit.registry.numbers[id], 1)
    return found.evaluated, found.matched


def test_evaluated_counts_what_came_while_it_was_active_and_a_change_goes_on_counting(kit: Kit) -> None:
    events = [(offset, {"symbol": "GE", "price": offset}) for offset in (2, 3, 5, 6)]
    kit.store(item("early", {"price": {"lte": 5}}), item("late"))
    # In one frame: two events before the second one is active, two after.
    kit.frame(0, 6, activate(1, ("early", 1)), activate(4, ("late", 1)), events=events)
    assert counts(kit, "early") == (4, 3)
    assert counts(kit, "late") == (2, 2)
    kit.store(item("early", {"price": {"gt": 5}}, version=2))
    change = control(7, "change", versions=[("early", 2)])
    kit.frame(6, 9, change, events=[(8, {"symbol": "GE", "price": 8}), (9, {"symbol": "GE", "price": 1})])
    assert counts(kit, "early") == (6, 4)
    kit.writer.submit(Call(kit.registry.counters.save)).result(30)
    kit.reopen()
    assert counts(kit, "early") == (6, 4)
    # A number that is used again begins at nothing.
    kit.frame(9, 10, control(10, "deactivate", ids=["early", "late"]))
    kit.writer.submit(_Empty()).result(30)
    assert kit.collect() == 3
    kit.store(item("new"))
    kit.frame(10, 12, activate(11, ("new", 1)), events=[(12, {"symbol": "GE", "price": 1})])
    assert counts(kit, "new") == (1, 1)


class _Empty(attempts.Job[None]):
    """Nothing waits any more."""

    def work(self, db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM outbox")


def attempt(time: int) -> Attempt:
    return Attempt(time, f"msg_{time}", 200, None, 0.1, "", 1, "delivered")


def test_an_address_keeps_its_newest_attempts_over_writes_and_none_that_is_too_old(kit: Kit) -> None:
    kept = Attempts()
    for time in range(1, 2 * MOST + 1):
        kept.add("a", attempt(time))
        if time % 7 == 0:
            kit.writer.submit(attempts.Write(kept.take(), oldest=0)).result(30)
    kept.add("b", attempt(5))
    with contextlib.closing(kit.folder.connect(read_only=True)) as db:
        found = kept.latest("a", attempts.stored(db, "a"), oldest=0)
        assert [one.time for one in found] == list(range(2 * MOST, MOST, -1))
        assert len(kept.latest("a", attempts.stored(db, "a"), oldest=2 * MOST - 4)) == 5
        assert [one.time for one in kept.latest("b", attempts.stored(db, "b"), oldest=0)] == [5]
        assert kept.latest("c", attempts.stored(db, "c"), oldest=0) == []
    kit.writer.submit(attempts.Write(kept.take(), oldest=6)).result(30)
    assert kit.count("attempts") == 1


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.binary(max_size=12)), max_size=30))
def test_the_newest_bodies_stay_in_memory_up_to_a_limit(requests: list[tuple[str, bytes]]) -> None:
    bodies, newest = RecentBodies(limit=20), dict[str, bytes]()
    for name, body in requests:
        bodies.add(name, body)
        newest.pop(name, None)
        newest[name] = body
        while sum(map(len, newest.values())) > 20:
            newest.pop(next(iter(newest)))
    for name in "abcdef":
        assert bodies.find(name) == (newest[name].decode(errors="replace") if name in newest else None)
