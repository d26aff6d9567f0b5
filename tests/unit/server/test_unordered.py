"""Unordered addresses: one poison event delays nobody, and nothing is lost or sent under a second id."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any, ClassVar

import pytest
from deliverykit import asking, eventually, notifying
from hypothesis import given, settings
from hypothesis import strategies as st
from serverkit import Kit, activate, control, item

from edn.formats.sink_settings import Retry, SinkSettings
from edn_server.config import Settings
from edn_server.delivery import unordered
from edn_server.policies import RetryPolicy
from edn_server.sinks.base import Answer, Message
from edn_server.storage import outbox

ADDRESS = "/+{}/http://127.0.0.1:9/hook"


def unordered_settings(**given: Any) -> SinkSettings:
    return SinkSettings(ordered=False, **given).with_id(b"")


class Hook:
    """Answers by event: a list of statuses per event id, then 200; records every POST."""

    answers: ClassVar[dict[str, list[int | None]]]
    default: ClassVar[int | None]
    posts: ClassVar[list[tuple[str, str, int | None]]]
    in_flight: ClassVar[int]
    most: ClassVar[int]
    pauses: ClassVar[bool]

    def __init__(self, _: Settings) -> None:
        pass

    @classmethod
    def reset(cls) -> None:
        cls.answers, cls.posts, cls.default = {}, [], 200
        cls.in_flight = cls.most = 0
        cls.pauses = True

    async def send(self, message: Message) -> Answer:
        kind = type(self)
        kind.in_flight += 1
        kind.most = max(kind.most, kind.in_flight)
        if kind.pauses:
            await asyncio.sleep(0)
        kind.in_flight -= 1
        [entry] = json.loads(message.body)["notifications"]
        event = entry["event"]["id"]
        queued = self.answers.get(event)
        status = queued.pop(0) if queued else self.default
        self.posts.append((message.webhook_id, event, status))
        return Answer(status, reason=None if status else "no answer")

    async def close(self) -> None:
        pass

    @classmethod
    def accepted(cls) -> list[str]:
        return [event for _, event, status in cls.posts if status == 200]


@pytest.fixture(autouse=True)
def hook() -> type[Hook]:
    Hook.reset()
    return Hook


FURTHER: dict[str, Any] = {"http": Hook}


def subscribe(kit: Kit, sink: SinkSettings) -> str:
    kit.store(item("s", settings=sink))
    kit.frame(0, 1, activate(1, ("s", 1)))
    return ADDRESS.format(sink.id)


def publish(kit: Kit, after: int, count: int) -> None:
    events = [(offset, {"symbol": "GE", "price": offset}) for offset in range(after + 1, after + 1 + count)]
    kit.frame(after, after + count, events=events)


def test_one_poison_event_among_a_thousand_delays_nobody(kit: Kit) -> None:
    """All others arrive while the poison one is in its schedule after one attempt."""
    sink = unordered_settings(retry=Retry(schedule=(3600.0,), give_up=7200.0))
    address = subscribe(kit, sink)
    for frame in range(10):
        publish(kit, 1 + 100 * frame, 100)
    Hook.answers["e500"] = [500] * 1000

    async def main() -> None:
        async with notifying(kit, FURTHER) as notifier:
            await eventually(lambda: len(Hook.accepted()) == 999)
            # Its only attempt failed; the next one is an hour away, and it is no dead letter.
            assert [status for _, event, status in Hook.posts if event == "e500"] == [500]
            assert len(Hook.posts) == 1000
            assert len({name for name, *_ in Hook.posts}) == 1000
            assert notifier.retrying(address) == 1
            assert notifier.counters.dead == 0
            assert 1 < Hook.most <= unordered.LANES
            await notifier._settlements.flush()
        [left] = outbox.asides(kit.db, address)
        assert left.attempts == 1

    asyncio.run(main())


def test_a_poison_event_keeps_its_webhook_id_over_retries_and_a_restart(kit: Kit) -> None:
    sink = unordered_settings(retry=Retry(schedule=(0.1,), give_up=7200.0))
    address = subscribe(kit, sink)
    publish(kit, 1, 3)
    Hook.answers["e3"] = [500, None, 503]

    async def until(condition: Any) -> None:
        async with notifying(kit, FURTHER) as notifier:
            await eventually(condition)
            await notifier._settlements.flush()

    asyncio.run(until(lambda: len(Hook.posts) >= 4))
    kit.reopen()
    [left] = outbox.asides(kit.db, address)
    assert left.attempts >= 1
    asyncio.run(until(lambda: len(Hook.accepted()) == 3))
    mine = [(name, status) for name, event, status in Hook.posts if event == "e3"]
    assert [status for _, status in mine] == [500, None, 503, 200]
    assert len({name for name, _ in mine}) == 1
    assert outbox.backlog(kit.db) == 0


def test_a_poison_event_becomes_a_dead_letter_alone(kit: Kit) -> None:
    sink = unordered_settings(retry=Retry(permanent=(422,)))
    subscribe(kit, sink)
    publish(kit, 1, 20)
    Hook.answers["e7"] = [422]

    async def main() -> None:
        async with asking(kit, further=FURTHER) as (notifier, evidence):
            await eventually(lambda: notifier.counters.dead == 1)
            await notifier.idle()
            page, _ = await evidence.letters("s", None, 10)
            assert [(one["status"], one["attempts"]) for one in page] == [(422, 1)]
            assert len(Hook.accepted()) == 19
            [refused] = [name for name, event, _ in Hook.posts if event == "e7"]
            assert page[0]["webhook_id"] == refused
            # Resent, it goes out under the same id, though its row is older than all others.
            await evidence.recover("s", 0)
            await eventually(lambda: len(Hook.accepted()) == 20)
            assert Hook.posts[-1] == (refused, "e7", 200)

    asyncio.run(main())


def test_a_dead_sink_is_probed_and_not_flooded(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few attempts run before the address rests, and all rows arrive once the sink lives."""
    monkeypatch.setattr(unordered, "TOLERATED", 3)
    sink = unordered_settings(retry=Retry(schedule=(0.2,), give_up=7200.0))
    address = subscribe(kit, sink)
    publish(kit, 1, 200)
    Hook.default = None

    async def main() -> None:
        async with notifying(kit, FURTHER) as notifier:
            # All lanes had begun before the first failure was known.
            await eventually(lambda: notifier.health(address).failures >= unordered.LANES)
            flood = len(Hook.posts)
            assert flood == unordered.LANES
            assert notifier.health(address).state == "failing"
            await eventually(lambda: len(Hook.posts) > flood)
            # One attempt at a time from here on.
            assert len(Hook.posts) <= flood + 2
            Hook.default = 200
            await eventually(lambda: len(set(Hook.accepted())) == 200)
            await notifier.idle()
            assert notifier.health(address).state == "healthy"
        assert Counter(Hook.accepted()).most_common(1)[0][1] == 1
        assert outbox.backlog(kit.db) == 0

    asyncio.run(main())


def test_an_address_that_is_gone_keeps_nothing(kit: Kit) -> None:
    address = subscribe(kit, unordered_settings())
    publish(kit, 1, 100)
    Hook.default = 410

    async def main() -> None:
        async with notifying(kit, FURTHER) as notifier:
            await eventually(lambda: notifier.counters.dead == 100)
            await notifier.idle()
            assert notifier.health(address).disabled == "gone"
            assert len(Hook.posts) <= unordered.LANES
        assert outbox.backlog(kit.db) == 0

    asyncio.run(main())


def test_rows_that_are_too_old_die_without_an_attempt_each(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unordered, "TOLERATED", 1)
    sink = unordered_settings(retry=Retry(schedule=(0.05,), give_up=0.3))
    subscribe(kit, sink)
    publish(kit, 1, 150)
    Hook.default = 503

    async def main() -> None:
        async with notifying(kit, FURTHER) as notifier:
            await eventually(lambda: notifier.counters.dead == 150)
            assert len(Hook.posts) < 100
            await notifier.idle()
        assert outbox.backlog(kit.db) == 0

    asyncio.run(main())


def test_the_rate_of_the_settings_is_kept(kit: Kit) -> None:
    sink = unordered_settings(rate=50.0)
    subscribe(kit, sink)
    publish(kit, 1, 30)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with notifying(kit, FURTHER) as notifier:
            began = loop.time()
            await eventually(lambda: len(Hook.accepted()) == 30)
            # 5 at once, then one every 20 ms: it cannot take less, whatever the machine does.
            assert loop.time() - began >= (30 - 6) / 50.0
            await notifier.idle()
        assert len(Hook.posts) == 30

    asyncio.run(main())


def test_buffered_rows_are_rows_of_their_own_too(kit: Kit) -> None:
    subscribe(kit, unordered_settings(retry=Retry(schedule=(3600.0,), give_up=7200.0)))
    kit.frame(1, 2, control(2, "pause", ids=["s"]))
    publish(kit, 2, 10)
    kit.frame(12, 13, control(13, "resume", ids=["s"]))
    Hook.answers["e5"] = [500] * 10

    async def main() -> None:
        async with notifying(kit, FURTHER) as notifier:
            await eventually(lambda: len(Hook.accepted()) == 9)
            await notifier._settlements.flush()

    asyncio.run(main())


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 80), fates=st.integers(1, 4))
def test_every_event_is_accepted_once_or_dead(
    seed: int, count: int, fates: int, tmp_path_factory: Any
) -> None:
    """Against an oracle by event: accepted exactly once unless its answers are permanent; one id, always."""
    chance = random.Random(seed)
    kit = Kit(tmp_path_factory.mktemp("kit"))
    Hook.reset()
    sink = unordered_settings(retry=Retry(permanent=(422,)))
    subscribe(kit, sink)
    at, dead = 1, set()
    while at <= count:
        step = chance.randint(1, 40)
        publish(kit, at, step)
        at += step
    for offset in range(2, at + 1):
        plan: list[int | None] = [
            chance.choice([500, None, 429, 404]) for _ in range(chance.randrange(fates))
        ]
        if chance.random() < 0.1:
            plan.append(422)
            dead.add(f"e{offset}")
        Hook.answers[f"e{offset}"] = plan

    async def main() -> None:
        policy = RetryPolicy(steps=(0.001,), refused_attempts=100)
        async with notifying(kit, FURTHER, retries=policy) as notifier:
            await eventually(lambda: not notifier.waiting and notifier._settlements.is_idle)
            assert notifier.counters.dead == len(dead)

    try:
        asyncio.run(main())
        accepted = Counter(Hook.accepted())
        assert accepted == Counter({f"e{n}" for n in range(2, at + 1)} - dead)
        ids: dict[str, set[str]] = {}
        for name, event, _ in Hook.posts:
            ids.setdefault(event, set()).add(name)
        assert all(len(names) == 1 for names in ids.values())
        assert len({name for names in ids.values() for name in names}) == len(ids)
        assert outbox.backlog(kit.db) == 0
    finally:
        kit.close()
