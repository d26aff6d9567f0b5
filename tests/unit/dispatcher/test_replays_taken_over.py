"""A subscription on a lost server that was still being told its past goes on elsewhere, with that past."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from corekit import Core
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.rebalance.mover import Mover
from dispatcher.store import repartitions, replays
from dispatcher.store.directory import Subscription
from dispatcher.store.records import EventsRecord
from dispatcher.store.replays import Replay
from dispatcher.subscriptions.replay import choose
from edn.model.rect import Rects

EVERYTHING = Rects(np.full((1, 1), -np.inf), np.full((1, 1), np.inf), np.ones(1, dtype=np.bool_))


async def replaced(
    folder: Path, *pasts: tuple[int, int, int | None, int | None], cursor: int
) -> list[Replay]:
    """What is noted for a subscription of a lost server that had these replays (upto, time, since, after)."""
    core = Core(folder, ("s1", "s2"))
    core.log.start()
    await core.put("t")
    made = await core.subscribe("a", "t")
    begun: list[Replay] = []
    for upto, time, since, after in pasts:
        old = Replay(made.id, made.version, made.server, made.topic, None, upto, time, since, after)
        await core.log.submit(lambda transaction, old=old: replays.insert(transaction, old))
    moving = Mover(
        core.log,
        core.topics,
        core.network.placing,
        core.network.bindings,
        core.subscriptions.lock,
        core.installer,
        on_moved=lambda: None,
        on_replay=begun.append,
    )
    other = "s2" if made.server == "s1" else "s1"
    outcome = await moving.move({"a": other}, lost={made.server: cursor})
    assert outcome.moved == ["a"]
    rows = core.log._reader.execute("SELECT server, time, since, after FROM replays").fetchall()
    assert rows == [(one.server, one.time, one.since, one.after) for one in begun]
    assert [one.server for one in begun] == [other]
    await core.network.stop()
    return begun


def test_without_a_past_only_what_was_not_read_is_told(tmp_path: Path) -> None:
    [noted] = asyncio.run(replaced(tmp_path, cursor=7))
    assert (noted.since, noted.after, noted.has_retained) == (None, 7, False)


def test_a_past_that_was_not_told_to_its_end_goes_along(tmp_path: Path) -> None:
    [noted] = asyncio.run(replaced(tmp_path, (5, 1_000, None, None), cursor=7))
    assert (noted.time, noted.since, noted.after, noted.has_retained) == (1_000, 0, 7, True)


def test_what_was_live_begins_after_the_activation_though_that_was_not_read(tmp_path: Path) -> None:
    [noted] = asyncio.run(replaced(tmp_path, (5, 1_000, 300, None), cursor=2))
    assert (noted.time, noted.since, noted.after) == (1_000, 300, 5)


def test_a_second_loss_goes_back_to_what_the_first_had_not_read(tmp_path: Path) -> None:
    [noted] = asyncio.run(replaced(tmp_path, (5, 1_000, None, 3), cursor=7))
    assert (noted.since, noted.after, noted.has_retained) == (None, 3, False)


def test_a_second_loss_keeps_the_past(tmp_path: Path) -> None:
    [noted] = asyncio.run(replaced(tmp_path, (9, 1_000, 0, 3), cursor=7))
    assert (noted.time, noted.since, noted.after, noted.has_retained) == (1_000, 0, 3, True)


def test_what_has_ended_leaves_no_replay_behind_once_its_server_is_replaced(tmp_path: Path) -> None:
    async def run() -> None:
        core = Core(tmp_path, ("s1", "s2"))
        core.log.start()
        await core.put("t")
        made: Subscription = await core.subscribe("a", "t")
        old = Replay("ended", 1, made.server, made.topic, None, 5, 1_000, None, None)
        others = replace(old, subscription="goes on", server="another")
        for one in (old, others):
            await core.log.submit(lambda transaction, one=one: replays.insert(transaction, one))
        replacing = await core.log.submit(
            lambda transaction: repartitions.create(transaction, "replace", made.server, 100.0, None)
        )
        await core.log.submit(lambda transaction: repartitions.finish(transaction, replacing, "done"))
        left = core.log._reader.execute("SELECT subscription FROM replays").fetchall()
        assert left == [("goes on",)]
        await core.network.stop()

    asyncio.run(run())


@dataclass(frozen=True)
class Event:
    offset: int
    time: int
    #: None: it was available to nobody later
    expires: int | None


@given(data=st.data())
def test_the_past_and_what_was_not_read_are_told_once_each(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.tuples(st.integers(1, 3), st.none() | st.integers(0, 40)), max_size=8))
    events, time = [], 0
    for offset, (gap, lasting) in enumerate(gaps, 1):
        time += gap
        events.append(Event(offset, time, None if lasting is None else time + lasting))
    activation = data.draw(st.integers(0, len(events)))
    begun = events[activation - 1].time if activation else 0
    since = data.draw(st.integers(0, time + 1))
    cursor = data.draw(st.integers(0, len(events)))
    upto = len(events)
    replay = Replay("a", 1, "s", 1, None, upto, begun, since, max(cursor, activation))
    told = []
    for event in events:
        record = EventsRecord(
            event.offset,
            event.time,
            1,
            [],
            np.zeros(1, dtype=np.int64),
            b"{}\n",
            np.zeros((1, 1)),
            None if event.expires is None else np.array([event.expires]),
        )
        if choose(record, replay, EVERYTHING)[0]:
            told.append(event.offset)
    past = [
        event.offset
        for event in events
        if event.offset <= activation
        and event.time >= since
        and event.expires is not None
        and event.expires > begun
    ]
    unread = [event.offset for event in events if event.offset > max(cursor, activation)]
    assert told == past + unread
