"""What waits together goes out together: limits, delay, and the same parcel after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import pytest
from deliverykit import EVENT, Receiver, fill, notifying, run
from serverkit import Kit, activate, item

from edn_server.delivery import notifier as notifier_module
from edn_server.outbox import cleanup
from edn_server.policies import Batching


def ids(post: object) -> list[str]:
    return [entry["event"]["id"] for entry in post.body["notifications"]]  # type: ignore[attr-defined]  # a Post


def test_rows_that_wait_are_posted_together_up_to_the_limit_of_events(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=12)
        async with notifying(kit, batching=Batching(events=5)) as notifier:
            await notifier.idle()
        assert [len(ids(post)) for post in receiver.posts] == [5, 5, 2]
        assert [id for post in receiver.posts for id in ids(post)] == [f"e{o}" for o in range(2, 14)]

    run(scenario)
    assert kit.rows() == []
    assert kit.count("batches") == kit.count("events") == 0


def test_a_parcel_ends_before_it_grows_beyond_its_bytes_but_holds_one_row(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        kit.store(item("s", url=receiver.url("/a")))
        kit.frame(0, 1, activate(1, ("s", 1)))
        for offset in range(2, 8):
            kit.frame(offset - 1, offset, events=[(offset, {"symbol": "x" * 1000, "price": 1})])
        async with notifying(kit, batching=Batching(bytes=2500)) as notifier:
            await notifier.idle()
        assert [len(ids(post)) for post in receiver.posts] == [2, 2, 2]
        receiver.posts.clear()
        kit.frame(7, 8, events=[(8, {"symbol": "x" * 5000, "price": 1})])
        async with notifying(kit, batching=Batching(bytes=2500)) as notifier:
            await notifier.idle()
        assert [len(ids(post)) for post in receiver.posts] == [1]

    run(scenario)


def test_a_parcel_is_the_same_after_a_crash_although_more_waits_by_then(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=3)
        receiver.held["/a"] = asyncio.Event()
        async with notifying(kit, batching=Batching()):
            await receiver.until(lambda: len(receiver.posts) == 1)
        kit.reopen()
        kit.frame(4, 5, events=[(5, EVENT)])
        receiver.held["/a"].set()
        async with notifying(kit, batching=Batching()) as notifier:
            await notifier.idle()
        first, second, third = receiver.posts
        assert ids(first) == ["e2", "e3", "e4"]
        assert (first.headers["webhook-id"], first.raw) == (second.headers["webhook-id"], second.raw)
        assert ids(third) == ["e5"]

    run(scenario)
    assert kit.rows() == []


def test_a_row_that_was_tried_alone_stays_alone_although_more_waits_by_then(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"))
        receiver.held["/a"] = asyncio.Event()
        receiver.answers["/a"] = ["500 No\r\n"]
        async with notifying(kit, batching=Batching()) as notifier:
            await receiver.until(lambda: len(receiver.posts) == 1)
            for offset in (3, 4, 5):
                await asyncio.to_thread(kit.frame, offset - 1, offset, events=[(offset, EVENT)])
            receiver.held["/a"].set()
            await notifier.idle()
        first, second, third = receiver.posts
        assert ids(first) == ["e2"]
        assert (first.headers["webhook-id"], first.raw) == (second.headers["webhook-id"], second.raw)
        assert ids(third) == ["e3", "e4", "e5"]

    run(scenario)
    assert kit.rows() == []


def test_a_row_that_was_sent_alone_before_a_crash_stays_alone_and_later_ones_go_together(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"))
        receiver.held["/a"] = asyncio.Event()
        async with notifying(kit, batching=Batching()):
            await receiver.until(lambda: len(receiver.posts) == 1)
        kit.reopen()
        receiver.held["/a"].set()
        async with notifying(kit, batching=Batching(delay=0.2)) as notifier:
            # They come after the start, so nobody can have sent them yet.
            for offset in (3, 4, 5):
                applied = await asyncio.to_thread(kit.frame, offset - 1, offset, events=[(offset, EVENT)])
                notifier.announce(applied.rows, applied.addresses)
            await notifier.idle()
        first, second, *rest = receiver.posts
        assert ids(first) == ["e2"]
        assert (first.headers["webhook-id"], first.raw) == (second.headers["webhook-id"], second.raw)
        assert [id for post in rest for id in ids(post)] == ["e3", "e4", "e5"]

    run(scenario)
    assert kit.rows() == []


def test_a_row_that_was_taken_but_could_not_be_settled_is_sent_again_as_it_was(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = iter([sqlite3.OperationalError("database or disk is full")])
    settle = cleanup.Settle.work

    def work(job: cleanup.Settle, db: sqlite3.Connection) -> int:
        for error in failing:
            raise error
        return settle(job, db)

    monkeypatch.setattr(cleanup.Settle, "work", work)
    monkeypatch.setattr(notifier_module, "FAILED_SECONDS", 0.05)

    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"))
        receiver.held["/a"] = asyncio.Event()
        async with notifying(kit, batching=Batching()) as notifier:
            await receiver.until(lambda: len(receiver.posts) == 1)
            for offset in (3, 4, 5):
                await asyncio.to_thread(kit.frame, offset - 1, offset, events=[(offset, EVENT)])
            receiver.held["/a"].set()
            await notifier.idle()
        first, second, third = receiver.posts
        assert ids(first) == ["e2"]
        assert (first.headers["webhook-id"], first.raw) == (second.headers["webhook-id"], second.raw)
        assert ids(third) == ["e3", "e4", "e5"]

    run(scenario)
    assert kit.rows() == []


def test_what_dies_with_others_is_the_letter_that_was_tried(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"))
        receiver.held["/a"] = asyncio.Event()
        receiver.answers["/a"] = ["410 Gone\r\n"]
        async with notifying(kit, batching=Batching()) as notifier:
            await receiver.until(lambda: len(receiver.posts) == 1)
            for offset in (3, 4):
                await asyncio.to_thread(kit.frame, offset - 1, offset, events=[(offset, EVENT)])
            receiver.held["/a"].set()
            await notifier.idle()

    run(scenario)
    with contextlib.closing(kit.folder.connect(read_only=True)) as db:
        letters = db.execute("SELECT events FROM dead_letters ORDER BY id").fetchall()
    assert letters == [(1,), (2,)]


def test_with_a_delay_an_event_waits_for_others_but_not_for_ever(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"))
        async with notifying(kit, batching=Batching(delay=1.0)) as notifier:
            # The second row comes before the first one's time is over, as nothing was sent at once.
            applied = await asyncio.to_thread(kit.frame, 2, 3, events=[(3, EVENT)])
            notifier.announce(applied.rows, applied.addresses)
            await notifier.idle()
        assert [ids(post) for post in receiver.posts] == [["e2", "e3"]]

    run(scenario)


def test_a_full_batch_does_not_wait(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=2)
        async with notifying(kit, batching=Batching(events=2, delay=3600)) as notifier:
            await notifier.idle()
        assert [ids(post) for post in receiver.posts] == [["e2", "e3"]]

    run(scenario)
