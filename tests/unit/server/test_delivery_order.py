"""Delivery from memory and from the outbox: whatever happens, order, completeness and identity hold.

The oracle knows nothing of queues or batches: every address must receive its events in the order of their
offsets, each at least once; a webhook-id never has two bodies; an event that was accepted under one
webhook-id is never sent under another.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from deliverykit import EVENT, eventually, notifying
from hypothesis import given, settings
from hypothesis import strategies as st
from serverkit import Kit, activate, item

from edn_server.config import Settings
from edn_server.delivery import notifier as notifier_module
from edn_server.delivery import queue as queue_module
from edn_server.delivery.notifier import Notifier
from edn_server.delivery.queue import AddressQueue, Memory
from edn_server.policies import Batching
from edn_server.sinks.base import Answer, ImmediateSink, Message
from edn_server.storage.outbox import Page, Row

ADDRESSES = 3


class Receivers(ImmediateSink):
    """Records what arrives; fails at random, before or after it has recorded a POST."""

    chance: ClassVar[random.Random]
    calm: ClassVar[bool]
    #: url → (webhook-id, body, ids of its events, whether it was accepted)
    posts: ClassVar[dict[str, list[tuple[str, bytes, list[str], bool]]]]

    def __init__(self, _: Settings) -> None:
        """Each start makes one; the record outlives it."""
        self.tasks: set[asyncio.Task[None]] = set()

    async def send(self, message: Message) -> Answer:
        fate = "taken" if self.calm else self.chance.choice(["taken", "taken", "taken", "refused", "lost"])
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)
        if fate == "refused":
            return Answer(503)
        ids = [entry["event"]["id"] for entry in json.loads(message.body)["notifications"]]
        self.posts.setdefault(message.url, []).append(
            (message.webhook_id, message.body, ids, fate == "taken")
        )
        await asyncio.sleep(0)
        return Answer(200) if fate == "taken" else Answer(None, reason="no answer")

    def begin(self, message: Message, on_answer: Callable[[Answer | None], None]) -> bool:
        """Send at once, sometimes; the connection may turn out to be closed."""
        if self.chance.random() < 0.3:
            return False

        async def answer() -> None:
            is_closed = not self.calm and self.chance.random() < 0.2
            on_answer(None if is_closed else await self.send(message))

        task = asyncio.create_task(answer())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return True

    async def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()


def url(number: int) -> str:
    return f"http://receiver{number}/"


def check(expected: dict[str, list[str]]) -> None:
    bodies: dict[str, bytes] = {}
    for address, events in expected.items():
        posts = Receivers.posts.get(address, [])
        accepted: dict[str, str] = {}
        order: list[str] = []
        for webhook_id, body, ids, is_accepted in posts:
            assert bodies.setdefault(webhook_id, body) == body, f"{webhook_id} has two bodies"
            for id in ids:
                if is_accepted:
                    assert accepted.setdefault(id, webhook_id) == webhook_id, f"{id} went out under two ids"
                if id not in order:
                    order.append(id)
        assert order == events
        assert list(accepted) == events


def announce_sometimes(notifier: Notifier, applied: Any, chance: random.Random) -> None:
    """Pass rows on as the writer does, or have the outbox read, as after a release of buffered rows."""
    if chance.random() < 0.8:
        notifier.announce(applied.rows, applied.addresses)
    else:
        notifier.wake([*applied.addresses, *(row.address for row in applied.rows)])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    page=st.integers(1, 5),
    most=st.integers(1, 12),
    batch=st.integers(1, 4),
    cached=st.booleans(),
)
def test_every_address_receives_its_events_in_order_under_one_id(
    tmp_path_factory: pytest.TempPathFactory, seed: int, page: int, most: int, batch: int, cached: bool
) -> None:
    chance = Receivers.chance = random.Random(seed)
    Receivers.posts = {}
    expected: dict[str, list[str]] = {url(number): [] for number in range(ADDRESSES)}
    kit = Kit(tmp_path_factory.mktemp("server"))
    offset = 1

    def publish() -> Any:
        nonlocal offset
        count = chance.randrange(1, 4)
        events = [(offset + 1 + n, EVENT) for n in range(count)]
        for number, _ in events:
            for address in expected.values():
                address.append(f"e{number}")
        applied = kit.frame(offset, offset + count, events=events)
        offset += count
        return applied

    async def run(steps: int, *, calm: bool) -> None:
        Receivers.calm = calm
        async with notifying(kit, {"http": Receivers}, batching=Batching(events=batch)) as notifier:
            loop = asyncio.get_running_loop()

            def pass_on(applied: Any) -> None:
                # In the writer's thread, as in the product: no settlement of these rows is committed before.
                if cached:
                    notifier.recent.put(*kit.payloads)
                loop.call_soon_threadsafe(announce_sometimes, notifier, applied, chance)

            kit.on_applied = pass_on
            for _ in range(steps):
                await asyncio.to_thread(publish)
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            if calm:
                await notifier.idle()
            elif chance.random() < 0.5:
                notifier._settlements._collected.clear()  # a crash after the POSTs, before their settlement

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_module, "PAGE", page)
        patch.setattr(notifier_module, "PAGE", page)
        patch.setattr(notifier_module, "MOST_UNSETTLED", page)
        patch.setattr(queue_module, "MOST_ROWS", most)
        try:
            kit.store(*(item(f"s{number}", url=url(number)) for number in range(ADDRESSES)))
            kit.frame(0, 1, activate(1, *((f"s{number}", 1) for number in range(ADDRESSES))))
            for _ in range(chance.randrange(1, 4)):
                # Ends in the middle of whatever it does; nothing is settled after that.
                asyncio.run(run(chance.randrange(1, 8), calm=False))
                kit.reopen()
            asyncio.run(run(2, calm=True))
            check(expected)
            assert kit.rows() == []
            assert kit.count("batches") == kit.count("events") == 0
        finally:
            kit.close()


def test_a_row_that_is_announced_after_its_delivery_is_not_sent_again(kit: Kit) -> None:
    Receivers.chance, Receivers.calm, Receivers.posts = random.Random(1), True, {}
    kit.store(item("s", url=url(0)))
    kit.frame(0, 1, activate(1, ("s", 1)))

    async def main() -> None:
        async with notifying(kit, {"http": Receivers}) as notifier:
            notifier._settlements._due = math.inf
            applied = await asyncio.to_thread(kit.frame, 1, 2, events=[(2, EVENT)])
            # Another reason to read the outbox comes first, and the worker ends.
            notifier.wake([row.address for row in applied.rows])
            await eventually(lambda: not notifier.waiting)
            notifier.announce(applied.rows, applied.addresses)
            await asyncio.sleep(0)
            assert notifier.waiting == []
            assert len(Receivers.posts[url(0)]) == 1

    asyncio.run(main())
    assert kit.rows() == []


# -- the queue alone -------------------------------------------------------------------------------------


def row(id: int) -> Row:
    return Row(id, "//http://a/", 1, b"", 1)


@settings(max_examples=300)
@given(
    page=st.integers(1, 4),
    most=st.integers(1, 6),
    steps=st.lists(
        st.sampled_from(["commit", "announce", "wake", "deliver", "begin", "end", "clear"]), max_size=60
    ),
)
def test_rows_in_memory_are_the_oldest_in_order_and_none_is_skipped(
    page: int, most: int, steps: list[str]
) -> None:
    memory = Memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_module, "PAGE", page)
        patch.setattr(queue_module, "MOST_ROWS", most)
        queue = AddressQueue("//http://a/", memory, is_complete=True)
        outbox: list[int] = []
        unannounced: list[int] = []
        newest, reading = 0, None
        for step in steps:
            if step == "commit":
                newest += 1
                outbox.append(newest)
                unannounced.append(newest)
            elif step == "announce" and unannounced:
                queue.append(row(unannounced.pop(0)))
            elif step == "wake" and unannounced:
                del unannounced[0]
                queue.invalidate()
            elif step == "deliver" and queue.rows and reading is None:
                first = queue.rows[0]
                assert first.id == outbox[0], "the oldest row is delivered first"
                queue.remove([first])
                del outbox[0]
            elif step == "begin" and not queue.rows and not queue.is_complete and reading is None:
                queue.begin_read()
                reading = Page([row(id) for id in outbox[:page]], has_more=len(outbox) > page)
            elif step == "end" and reading is not None:
                queue.add_page(reading)
                reading = None
            elif step == "clear" and reading is None:
                queue.clear()
            held = [one.id for one in queue.rows]
            assert held == outbox[: len(held)]
            assert memory.rows == len(held)
            if queue.is_complete and reading is None:
                missing = [id for id in outbox if id not in held]
                assert set(missing) <= set(unannounced), "a complete queue holds every announced row"
