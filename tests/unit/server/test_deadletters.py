"""Dead letters: how they come to be, how they are found, and that what is sent again is what was meant."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from typing import Any

import pytest
from deliverykit import EVENT, REFUSED, Receiver, asking, eventually, fill, notifying, run
from hypothesis import given
from hypothesis import strategies as st
from serverkit import Kit, activate, control, item

from edn.errors import Conflict, InvalidInput, NotFound
from edn_server.delivery import dead_letters as deadletters
from edn_server.policies import Batching, BreakerLimits, RetryPolicy
from edn_server.storage import dead_letters as letter_table
from edn_server.storage import outbox
from edn_server.storage.addresses import address_of


def names(posts: list[Any]) -> list[str]:
    return [entry["event"]["id"] for post in posts for entry in post.body["notifications"]]


def test_a_row_that_is_refused_too_often_makes_way_for_those_behind_it(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=3)
        receiver.answers["/a"] = [REFUSED] * 3
        async with asking(kit, retries=RetryPolicy(steps=(0.001,), refused_attempts=3)) as (
            notifier,
            evidence,
        ):
            await notifier.idle()
            [letter], following = await evidence.letters("s0", None, 10)
            whole = await evidence.letter(int(letter["id"].rpartition(".")[2]))
            delivery = await evidence.delivery("s0")
        assert names(receiver.posts) == ["e2", "e2", "e2", "e3", "e4"]
        assert following is None
        assert (letter["attempts"], letter["status"], letter["notifications"]) == (3, 400, 1)
        assert letter["webhook_id"] == receiver.posts[0].headers["webhook-id"]
        assert whole["body"] == receiver.posts[0].body
        assert whole["subscriptions"] == ["s0"]
        assert (delivery["matched"], delivery["delivered"], delivery["failed"]) == (3, 2, 1)
        assert (delivery["evaluated"], delivery["dead_letters"], delivery["state"]) == (3, 1, "healthy")

    run(scenario)
    assert kit.rows() == []
    assert kit.count("events") == 0


def test_what_waited_behind_a_row_that_is_too_old_and_is_as_old_dies_with_it(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, "http://127.0.0.1:1/dead", rows=30)
        async with asking(kit, retries=RetryPolicy(steps=(0.001,), give_up_seconds=0)) as (
            notifier,
            evidence,
        ):
            await notifier.idle()
            assert notifier.counters.dead == 30
            assert notifier.counters.failed == 1
            first, following = await evidence.letters("s0", None, 20)
            assert following is not None
            rest, end = await evidence.letters("s0", following, 20)
            assert end is None
            everything, _ = await evidence.letters(None, None, 100)
        assert [len(first), len(rest)] == [20, 10]
        assert [*first, *rest] == everything
        assert len({letter["id"] for letter in everything}) == 30

    run(scenario)
    assert kit.rows() == []


def test_a_letter_that_is_sent_again_has_the_same_id_and_body_and_survives_a_restart(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"))
        receiver.answers["/a"] = [REFUSED]
        async with asking(kit) as (notifier, _):
            await notifier.idle()
        kit.reopen()
        assert kit.rows() == []
        async with asking(kit) as (notifier, evidence):
            [letter], _ = await evidence.letters(None, None, 10)
            number = int(letter["id"].rpartition(".")[2])
            assert await evidence.resend(number) == {"letters": 1, "notifications": 1, "more": False}
            await notifier.idle()
            with pytest.raises(NotFound):
                await evidence.resend(number)
            assert (await evidence.delivery("s0"))["delivered"] == 1
        first, second = receiver.posts
        assert (first.headers["webhook-id"], first.raw) == (second.headers["webhook-id"], second.raw)

    run(scenario)
    assert kit.count("dead_letters") == kit.count("dead_names") == kit.count("outbox") == 0


def test_recovering_since_a_time_sends_what_died_from_then_on_in_order(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=6)
        receiver.answers["/a"] = [REFUSED] * 6
        async with asking(kit) as (notifier, evidence):
            await notifier.idle()
            letters, _ = await evidence.letters("s0", None, 10)
            with contextlib.closing(kit.folder.connect(read_only=True)) as db:
                third = letter_table.page(db, "s0", (0, 0), 10)[2]
            receiver.posts.clear()
            queued = await evidence.recover("s0", third.died)
            await notifier.idle()
            assert queued == {"letters": 4, "notifications": 4, "more": False}
            left, _ = await evidence.letters("s0", None, 10)
            assert left == letters[:2]
        assert names(receiver.posts) == ["e4", "e5", "e6", "e7"]

    run(scenario)


def test_a_letter_goes_to_the_sink_that_its_subscription_has_by_then_without_what_is_for_others(
    kit: Kit,
) -> None:
    async def scenario(receiver: Receiver) -> None:
        old, new = receiver.url("/old"), receiver.url("/new")
        kit.store(item("moves", url=old), item("stays", url=old))
        kit.frame(0, 2, activate(1, ("moves", 1), ("stays", 1)), events=[(2, EVENT)])
        receiver.answers["/old"] = [REFUSED]
        async with asking(kit) as (notifier, evidence):
            await notifier.idle()
            await asyncio.to_thread(kit.store, item("moves", version=2, url=new))
            await asyncio.to_thread(kit.frame, 2, 3, control(3, "change", versions=[("moves", 2)]))
            await evidence.recover("moves", 0)
            await notifier.idle()
            [letter], _ = await evidence.letters(None, None, 10)
            assert (await evidence.letters("moves", None, 10))[0] == []
            whole = await evidence.letter(int(letter["id"].rpartition(".")[2]))
            assert whole["subscriptions"] == ["stays"]
            await evidence.recover("stays", 0)
            await notifier.idle()
        told = [
            (post.path, [match["subscription"] for match in post.body["notifications"][0]["matches"]])
            for post in receiver.posts
        ]
        assert told == [("/old", ["moves", "stays"]), ("/new", ["moves"]), ("/old", ["stays"])]
        # Another body, so another id.
        assert len({post.headers["webhook-id"] for post in receiver.posts}) == 3

    run(scenario)
    assert kit.count("dead_letters") == kit.count("outbox") == 0


def test_what_a_letter_has_for_a_paused_subscription_waits_until_it_is_resumed(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        url = receiver.url("/a")
        kit.store(item("runs", url=url), item("rests", url=url))
        kit.frame(0, 2, activate(1, ("runs", 1), ("rests", 1)), events=[(2, EVENT)])
        receiver.answers["/a"] = [REFUSED]
        async with asking(kit) as (notifier, evidence):
            await notifier.idle()
            await asyncio.to_thread(kit.frame, 2, 3, control(3, "pause", ids=["rests"]))
            with pytest.raises(Conflict, match="paused"):
                await evidence.recover("rests", 0)
            await evidence.recover("runs", 0)
            await notifier.idle()
            [letter], _ = await evidence.letters("rests", None, 10)
            with pytest.raises(Conflict, match="paused"):
                await evidence.resend(int(letter["id"].rpartition(".")[2]))
            await asyncio.to_thread(kit.frame, 3, 4, control(4, "resume", ids=["rests"]))
            await evidence.recover("rests", 0)
            await notifier.idle()
        told = [
            [match["subscription"] for match in post.body["notifications"][0]["matches"]]
            for post in receiver.posts
        ]
        assert told == [["runs", "rests"], ["runs"], ["rests"]]
        assert len({post.headers["webhook-id"] for post in receiver.posts}) == 3

    run(scenario)
    assert kit.count("dead_letters") == kit.count("outbox") == 0


def test_what_nobody_is_left_to_be_told_cannot_be_sent_and_goes(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"))
        receiver.answers["/a"] = [REFUSED]
        async with asking(kit) as (notifier, evidence):
            await notifier.idle()
            [letter], _ = await evidence.letters("s0", None, 1)
            await asyncio.to_thread(kit.frame, 2, 3, control(3, "deactivate", ids=["s0"]))
            number = int(letter["id"].rpartition(".")[2])
            with pytest.raises(Conflict):
                await evidence.resend(number)
            assert await evidence.letter(number)
            purge = deadletters.Purge(0, lambda id: id not in kit.registry.numbers)
            assert await asyncio.wrap_future(kit.writer.submit(purge)) == 1
            with pytest.raises(NotFound):
                await evidence.letter(number)

    run(scenario)
    assert kit.count("dead_letters") == kit.count("dead_names") == kit.count("names") == 0


def test_letters_that_are_too_old_go(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=3)
        receiver.answers["/a"] = [REFUSED] * 3
        async with asking(kit) as (notifier, evidence):
            await notifier.idle()
            with contextlib.closing(kit.folder.connect(read_only=True)) as db:
                newest = letter_table.page(db, None, (0, 0), 10)[-1]
            purge = deadletters.Purge(newest.died, lambda _: False)
            assert await asyncio.wrap_future(kit.writer.submit(purge)) == 2
            assert len((await evidence.letters("s0", None, 10))[0]) == 1

    run(scenario)


@pytest.mark.parametrize("after", ["", "x", "1", "1-", "-1-2", "1-2-3", "9" * 20 + "-1", "１-２"])
def test_a_cursor_that_no_listing_gave_is_refused(kit: Kit, after: str) -> None:
    async def scenario(_: Receiver) -> None:
        async with asking(kit) as (_, evidence):
            with pytest.raises(InvalidInput):
                await evidence.letters(None, after, 10)

    run(scenario)


def test_unsubscribing_drops_what_a_failing_address_has_for_nobody_else(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        dead = "http://127.0.0.1:1/dead"
        kit.store(item("ends", {"symbol": "A"}, url=dead), item("stays", {"symbol": "B"}, url=dead))
        kit.frame(0, 1, activate(1, ("ends", 1), ("stays", 1)))
        kit.frame(1, 2, events=[(2, {"symbol": "A", "price": 1})])
        kit.frame(2, 3, events=[(3, {"symbol": "B", "price": 1})])
        kit.frame(3, 4, events=[(4, {"symbol": "A", "price": 1})])
        # Failing for long begins at once here.
        limits = BreakerLimits(warn_seconds=0)
        async with notifying(kit, retries=RetryPolicy(steps=(0.001, 3600)), breaking=limits) as notifier:
            await eventually(lambda: notifier.health(address_of("", dead, "")).failures > 1)
            await notifier.drop_ended()
            assert len(kit.rows()) == 3
            await asyncio.to_thread(kit.frame, 4, 5, control(5, "deactivate", ids=["ends"]))
            await notifier.drop_ended()
            assert [kit.body(row)["notifications"][0]["event"]["id"] for row in kit.rows()] == ["e3"]
            assert notifier.counters.dropped == 2
            # The row that stays is tried without waiting for the one that went.
            await eventually(lambda: notifier.health(address_of("", dead, "")).row == kit.rows()[0].id)

    run(scenario)


def test_a_batch_that_is_filled_while_its_beginning_is_read_does_not_wait(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, go = threading.Event(), threading.Event()
    page = outbox.page

    def slowly(*given: Any) -> list[outbox.Row]:
        rows = page(*given)
        read.set()
        assert go.wait(10)
        return rows

    monkeypatch.setattr(outbox, "page", slowly)

    async def scenario(receiver: Receiver) -> None:
        kit.store(item("s", url=receiver.url("/batch")))
        kit.frame(0, 1, activate(1, ("s", 1)))
        async with notifying(kit, batching=Batching(events=2, delay=3600)) as notifier:
            for offset in (2, 3):
                applied = await asyncio.to_thread(kit.frame, offset - 1, offset, events=[(offset, EVENT)])
                notifier.announce(applied.rows, applied.addresses)
                await asyncio.to_thread(read.wait, 10)
            go.set()
            await eventually(lambda: kit.count("outbox") == 0)

    run(scenario)


def test_a_parcel_of_which_any_row_is_for_somebody_stays_whole(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        dead = "http://127.0.0.1:1/dead"
        kit.store(item("ends", {"symbol": "A"}, url=dead), item("stays", {"symbol": "B"}, url=dead))
        kit.frame(0, 1, activate(1, ("ends", 1), ("stays", 1)))
        policy, limits = RetryPolicy(steps=(3600,)), BreakerLimits(warn_seconds=0)
        batching = Batching(events=2, delay=3600)
        async with notifying(kit, retries=policy, batching=batching, breaking=limits) as notifier:
            for offset, symbol in ((2, "A"), (3, "B")):
                events = [(offset, {"symbol": symbol, "price": 1})]
                applied = await asyncio.to_thread(kit.frame, offset - 1, offset, events=events)
                notifier.announce(applied.rows, applied.addresses)
            await eventually(lambda: notifier.health(address_of("", dead, "")).failures > 0)
            assert kit.count("batches") == 1
            await asyncio.to_thread(kit.frame, 3, 4, control(4, "deactivate", ids=["ends"]))
            await notifier.drop_ended()
            assert len(kit.rows()) == 2

    run(scenario)


def test_what_is_due_is_not_dropped_because_its_address_failed_once(kit: Kit) -> None:
    """The subscription was there when the event came: its end does not take that back."""

    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"))
        receiver.answers["/a"] = ["503 Busy\r\n", "503 Busy\r\n"]
        async with notifying(kit, retries=RetryPolicy(steps=(0.05, 0.05, 3600))) as notifier:
            await eventually(lambda: notifier.health(address_of("", receiver.url("/a"), "")).failures > 0)
            await asyncio.to_thread(kit.frame, 2, 3, control(3, "deactivate", ids=["s0"]))
            await notifier.drop_ended()
            await notifier.idle()
        assert [post.status for post in receiver.posts] == [503, 503, 204]

    run(scenario)


# -- splitting a body ---------------------------------------------------------------------------------------

subscriptions = st.sampled_from("abcd")
entries = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.text(max_size=3),
            "event": st.fixed_dictionaries({"id": st.text(max_size=3), "attributes": st.just({"x": 1.50})}),
            "matches": st.lists(
                st.builds(lambda s, r: {"subscription": s} | ({"recipient": r} if r else {}),
                          subscriptions, st.none() | st.text(min_size=1, max_size=3)),
                min_size=1, max_size=4,
            ),
        }
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip


def brute(notifications: list[Any], wanted: set[str], keep: bool) -> list[Any]:
    found = []
    for entry in notifications:
        kept = [match for match in entry["matches"] if (match["subscription"] in wanted) == keep]
        if kept:
            found.append({**entry, "matches": kept})
    return found


@given(entries, st.sets(subscriptions))
def test_splitting_a_body_loses_nothing_and_gives_each_their_own(
    notifications: list[Any], wanted: set[str]
) -> None:
    body = json.dumps({"notifications": notifications}).encode()
    for part, keep in zip(
        deadletters.split(body, "//http://h/", wanted.__contains__), (True, False), strict=True
    ):
        expected = brute(notifications, wanted, keep)
        assert (json.loads(part)["notifications"] if part else []) == expected
