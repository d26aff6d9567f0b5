"""Which messages of a batch become events: those that would alone, in their order, whatever else is in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.auth.caller import EVERYBODY, Caller
from dispatcher.sources import runner as running
from dispatcher.sources.messages import chunks, event_id
from dispatcher.sources.runner import SourceRunner
from dispatcher.store.sources import Letter, Source
from edn.api.events import Published
from edn.brokers.link import Link
from edn.brokers.messages import Incoming
from edn.errors import Conflict, Overloaded
from edn.formats.broker_url import parse
from edn.model.schema import Schema
from edn.protocol.documents import cut_events


@dataclass
class FakeTopic:
    schema: Schema


@dataclass
class World:
    """A topic that stores events by id as the log does, and now and then refuses."""

    refusals: list[bool] = field(default_factory=list)
    events: list[tuple[str | None, Any]] = field(default_factory=list)
    digests: dict[str, Any] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    topic: FakeTopic = field(default_factory=lambda: FakeTopic(Schema.parse({"n": "integer"})))

    async def publish(self, topic: Any, body: bytes, who: Caller, names: Sequence[str | None]) -> Published:
        if self.refusals and self.refusals.pop():
            raise Overloaded("too much", retry_after=0)
        batch = topic.schema.decode_events(body, cut_events)
        values = [json.loads(text) for text in batch.bodies]
        assert len(values) == len(names), "two messages became one event"
        fresh: dict[str, Any] = {}
        for place, (name, value) in enumerate(zip(names, values, strict=True)):
            if name is not None:
                known = fresh.get(name, self.digests.get(name, value))
                if known != value:
                    raise Conflict("the id is used", pointer=f"/{place}/$id")
                if name in fresh or name in self.digests:
                    continue
                fresh[name] = value
        for name, value in zip(names, values, strict=True):
            if name is None or (name in fresh and name not in self.digests):
                self.events.append((name, value))
                if name is not None:
                    self.digests[name] = value
        return Published(len(values), [])

    async def bury(self, source: str, letters: Sequence[Letter]) -> int:
        self.letters += letters
        return 0


class FakeConsumer:
    dropped = 0

    async def hold(self, messages: Sequence[Incoming]) -> None: ...


async def _nowhere(host: str) -> Sequence[str]:
    return []


def runner_of(world: World) -> SourceRunner:
    source = Source("s", "", "t", "nats://h/S", "edn-1", "", "ann", "{}", 0)
    return SourceRunner(
        source,
        parse("nats://h/S", "source"),
        EVERYBODY,
        Link(_nowhere),
        world.publish,
        lambda name, tenant: world.topic,  # type: ignore[arg-type, return-value]
        world.bury,
    )


_VALID = st.integers(-9, 9).map(lambda n: b'{"n": %d}' % n)
_BODIES = st.one_of(
    _VALID,
    st.sampled_from(
        [b"", b"{}", b"[]", b"1", b'{"n": "x"}', b'{"n": 1.5}', b'{"n": 1', b'"m": 2}', b'{"x":1},{"a":[1']
    ),
    st.sampled_from([b"2]}", b'{"n":1},{"n":2}', b"\xff", b" {} ", b'{"other": [1, {"n": 2}]}', b"null"]),
)
_MESSAGES = st.lists(st.tuples(_BODIES, st.one_of(st.none(), st.sampled_from("abcd"))), max_size=25)


def is_event(body: bytes) -> bool:
    """The rule, by Python's own parser: an object whose n, if it has one, is an integer."""
    try:
        value = json.loads(body.decode())
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(value.get("n", 0), int)


@given(_MESSAGES, st.lists(st.booleans(), max_size=3))
def test_a_batch_gives_the_events_that_its_messages_give_one_by_one(
    given: list[tuple[bytes, str | None]], refusals: list[bool]
) -> None:
    world = World(refusals)
    received = [Incoming(body, id, None) for body, id in given]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "REFUSED_SECONDS", 0.0)
        runner = runner_of(world)
        asyncio.run(runner._commit(FakeConsumer(), received))  # type: ignore[arg-type]
    expected: list[tuple[str | None, Any]] = []
    known: dict[str, Any] = {}
    bad = 0
    for body, id in given:
        if not is_event(body):
            bad += 1
            continue
        value = json.loads(body)
        if id is not None and id in known:
            bad += known[id] != value
            continue
        if id is not None:
            known[id] = value
        expected.append((id, value))
    assert world.events == expected
    assert len(world.letters) == bad
    assert runner.counters.published + runner.counters.rejected == len(given)


def test_a_message_above_the_limit_of_an_event_is_a_dead_letter_with_its_beginning() -> None:
    world = World()
    body = b'{"text": "' + b"x" * (2 << 20) + b'"}'
    asyncio.run(runner_of(world)._commit(FakeConsumer(), [Incoming(body, "i", None)]))  # type: ignore[arg-type]
    [letter] = world.letters
    assert "must have at most" in letter.reason
    assert (letter.size, letter.body) == (len(body), body[: 64 << 10])
    assert world.events == []


@given(st.lists(st.binary(max_size=30)), st.integers(10, 60))
def test_parts_of_a_batch_keep_the_order_and_the_limit(bodies: list[bytes], most: int) -> None:
    messages = [Incoming(body, None, None) for body in bodies]
    parts = list(chunks(messages, most))
    assert [message for part in parts for message in part] == messages
    for part in parts:
        assert len(part) == 1 or sum(len(one.body) + 1 for one in part) + 1 <= most


def test_a_long_message_id_becomes_a_short_one_that_is_as_unique() -> None:
    first, second = (Incoming(b"", "x" * 300 + end, None) for end in "ab")
    assert event_id(first) != event_id(second)
    assert len(str(event_id(first))) <= 256
    assert event_id(Incoming(b"", "short", None)) == "short"
    assert event_id(Incoming(b"", None, None)) is None
