"""When a repartition is proposed: a rule over hit ratios, without clocks and networks."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import VirtualLoop, run

from dispatcher.rebalance.advisor import ENOUGH, RepartitionAdvisor, Watch
from dispatcher.servers.pipeline import Counts
from edn.errors import Unavailable
from edn.runtime.disk import SqliteConnection
from edn.runtime.tasks import Tasks
from selftune.tuning import Tuning

PRECISE = 1.0


def interval(ratio: float, events: int = 1000, servers: int = 10) -> Counts:
    asked = events * servers
    return Counts(events=events, tested=asked, hits=round(asked * ratio))


@pytest.mark.parametrize(
    ("ratios", "proposed"),
    [
        ([0.4, 0.4, 0.4, 0.4], None),
        ([0.4, 0.5, 0.5, 0.5], None),  # a quarter more is not more than a quarter more
        ([0.4, 0.51, 0.51, 0.51], 3),  # three times in a row
        ([0.4, 0.51, 0.51, 0.4, 0.51, 0.51], None),  # it was better in between
        ([0.6, 0.4, 0.51, 0.51, 0.51], 4),  # the best counts, not the first
        ([0.4, 0.51, 0.51, 0.51, 0.51], 3),
    ],
)
def test_it_is_proposed_when_it_was_worse_three_times_in_a_row(
    ratios: list[float], proposed: int | None
) -> None:
    watch = Watch(0.25, {})
    answers = [watch.update(interval(ratio), PRECISE) for ratio in ratios]
    assert (answers.index(True) if True in answers else None) == proposed


def test_an_interval_with_few_events_says_nothing() -> None:
    watch = Watch(0.25, {100: 0.1})
    assert not any(watch.update(interval(1.0, events=ENOUGH - 1), PRECISE) for _ in range(5))
    assert watch.now is None


def test_another_precision_is_not_compared_with() -> None:
    watch = Watch(0.25, {})
    watch.update(interval(0.4), PRECISE)
    assert not any(watch.update(interval(0.9), 0.5) for _ in range(5))
    assert any(watch.update(interval(0.9), PRECISE) for _ in range(5))


def test_after_a_repartition_what_is_seen_then_counts() -> None:
    watch = Watch(0.25, {})
    watch.update(interval(0.2), PRECISE)
    watch.reset()
    assert not any(watch.update(interval(0.6), PRECISE) for _ in range(5))
    assert watch.best == {100: 0.6}


def test_a_threshold_of_0_proposes_nothing() -> None:
    watch = Watch(0.0, {})
    watch.update(interval(0.2), PRECISE)
    assert not any(watch.update(interval(0.9), PRECISE) for _ in range(5))


def test_a_best_that_could_not_be_stored_is_stored_later() -> None:
    async def may_start() -> bool:
        return True

    reader = sqlite3.connect(":memory:", factory=SqliteConnection)
    reader.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value)")
    disk_full = True

    async def submit(operation: Callable[[Any], None], *, changes: bool) -> None:
        assert not changes
        if disk_full:
            raise Unavailable("the log could not be written")
        operation(SimpleNamespace(connection=reader))

    counts = Counts()

    def snapshot() -> Counts:
        nonlocal counts
        counts = Counts(events=counts.events + 1000, tested=counts.tested + 10_000, hits=counts.hits + 4000)
        return counts

    # What a proposal looks at, and no more.
    settings: Any = SimpleNamespace(repartition_threshold=0.25, repartition_seconds=1.0)
    log: Any = SimpleNamespace(load=lambda function, *keys: function(reader, *keys), submit=submit)
    counters: Any = SimpleNamespace(snapshot=snapshot)

    async def look() -> None:
        nonlocal disk_full
        advisor = RepartitionAdvisor(
            settings, log, counters, Tuning(mode="fixed", precision=PRECISE), Tasks()
        )
        work = asyncio.create_task(advisor.run())
        await asyncio.sleep(1.5)
        assert reader.execute("SELECT count(*) FROM meta").fetchone() == (0,)
        disk_full = False
        await asyncio.sleep(1.0)
        assert not work.done()
        work.cancel()

    run(look(), VirtualLoop())
    assert reader.execute("SELECT value FROM meta").fetchone() == ('{"100": 0.4}',)
    reader.close()
