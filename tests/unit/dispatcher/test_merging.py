"""What one dispatcher changes becomes the same on another: topics, directory, and records in its own log."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from corekit import make_merger, page_after
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.config import Settings
from dispatcher.servers.registration import introduce
from dispatcher.services import Services
from dispatcher.store import change_feed, directory
from dispatcher.store.change_feed import Kind
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import read_records
from dispatcher.store.interface import Transaction
from dispatcher.store.records import ControlRecord
from dispatcher.subscriptions.replay import Replay
from dispatcher.subscriptions.topics import Topics
from edn import protocol

TOPIC = "quotes"


class Side:
    """A dispatcher's state without its doors."""

    def __init__(self, folder: Path, name: str) -> None:
        self.network = Services(Settings(data=folder / name, secret="s" * 16, peers=("http://other",)))
        self.log = self.network.log
        self.topics = Topics(self.log)
        self.replays: list[Replay] = []
        #: which server has each version
        self.stored: dict[tuple[str, int], str] = {}
        self.merger = make_merger(self.network, self.topics, self.replays.append)

    async def merge(self, other: Side, after: int | None = None) -> None:
        """Take over what the other has changed."""
        cursor = await self.merger.cursor(other.log.id) if after is None else after
        while (page := page_after(other.log, cursor)).upto != cursor:
            await self.merger.merge(page)
            cursor = page.upto

    def rows(self) -> dict[str, Subscription]:
        found, _ = directory.page(self.log._reader, now=0, limit=1000, cursor=None)
        return {one.id: one for one in found}

    def controls(self, after: int = 0) -> list[tuple[str, str, list[str]]]:
        """Kind, server and ids of the records beyond an offset."""
        return [
            (record.control.kind, record.server, [*record.control.ids, *(id for id, _ in versions(record))])
            for record in read_records(self.log._reader, after, 1 << 30)
            if isinstance(record, ControlRecord)
        ]

    # -- changes, as the life of a subscription makes them ----------------------------------------------

    async def server(self, name: str) -> None:
        state = protocol.ServerState(name, f"http://{name}", "k", 1)
        await self.log.submit(lambda transaction: introduce(transaction, state))
        self.network.registration.add_remote(state, 0)

    async def make(self, id: str, price: int, server: str = "s1") -> None:
        def operation(transaction: Transaction) -> None:
            former = change_feed.find(transaction.connection, Kind.SUBSCRIPTION, id)
            version = max(transaction.time, (former.version or 0) + 1 if former else 0)
            row = Subscription(
                id, version, "o", self.topics.get(TOPIC).uid, {"price": price}, "http://h", None, None,
                server, version,
            )  # fmt: skip
            self.stored[id, version] = server
            directory.insert(transaction.connection, row, frozenset({"price"}))
            transaction.append_control(server, "activate", versions=[(id, version)])
            change_feed.note(transaction, Kind.SUBSCRIPTION, id, stored=protocol.Stored(1, 1), since=None)

        await self.log.submit(operation)

    async def change(self, id: str, price: int) -> None:
        def operation(transaction: Transaction) -> None:
            found = directory.find(transaction.connection, id)
            assert found is not None
            changed = replace(found, version=found.version + 1, filter={"price": price})
            self.stored[id, changed.version] = found.server
            directory.replace(transaction.connection, changed, frozenset({"price"}))
            transaction.append_control(found.server, "change", versions=[(id, changed.version)])
            change_feed.note(transaction, Kind.SUBSCRIPTION, id, stored=protocol.Stored(1, 2))

        await self.log.submit(operation)

    async def move(self, id: str, server: str) -> None:
        def operation(transaction: Transaction) -> None:
            found = directory.find(transaction.connection, id)
            assert found is not None
            if found.server == server:
                return
            version = max(transaction.time, found.version + 1)
            self.stored[id, version] = server
            directory.move(transaction.connection, id, server, version)
            for concerned in (found.server, server):
                transaction.append_control(concerned, "move", versions=[(id, version)])
            stored = protocol.Stored(1, 3)
            change_feed.note(transaction, Kind.SUBSCRIPTION, id, stored=stored, former=found.server)

        await self.log.submit(operation)

    async def pause(self, id: str, paused: bool) -> None:
        def operation(transaction: Transaction) -> None:
            directory.pause(transaction.connection, id, paused)
            change_feed.note(transaction, Kind.SUBSCRIPTION, id)

        await self.log.submit(operation)

    async def renew(self, id: str, expires: int | None) -> None:
        def operation(transaction: Transaction) -> None:
            directory.renew(transaction.connection, id, expires)
            change_feed.note(transaction, Kind.SUBSCRIPTION, id, renewed=True)

        await self.log.submit(operation)

    async def end(self, id: str) -> None:
        def operation(transaction: Transaction) -> None:
            found = directory.find(transaction.connection, id)
            assert found is not None
            directory.delete(transaction.connection, id)
            change_feed.note_end(transaction, found)

        await self.log.submit(operation)


def versions(record: ControlRecord) -> list[tuple[str, int]]:
    return record.control.versions


def run(work: Callable[[Side, Side], Coroutine[Any, Any, None]]) -> None:
    """With two sides, the first of which has a topic and two servers."""

    async def whole(folder: Path) -> None:
        here, there = Side(folder, "here"), Side(folder, "there")
        for side in (here, there):
            side.log.start()
        try:
            await here.topics.put(await here.topics.draft(TOPIC, {"price": "number"}, None), None)
            for name in ("s1", "s2"):
                await here.server(name)
            await work(here, there)
        finally:
            for side in (here, there):
                await side.network.stop()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(whole(Path(folder)))


_NAMES = st.sampled_from(["a", "b", "c"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("make"), _NAMES, st.integers(1, 9), st.sampled_from(["s1", "s2"])),
        st.tuples(st.just("change"), _NAMES, st.integers(1, 9)),
        st.tuples(st.just("move"), _NAMES, st.sampled_from(["s1", "s2"])),
        st.tuples(st.just("pause"), _NAMES, st.booleans()),
        st.tuples(st.just("renew"), _NAMES, st.sampled_from([None, 2**60, 2**61])),
        st.tuples(st.just("end"), _NAMES),
        st.tuples(st.just("merge")),
    ),
    max_size=25,
)


@settings(max_examples=20, deadline=None)
@given(_STEPS)
def test_whenever_it_is_taken_over_the_directory_becomes_the_same(steps: list[tuple[Any, ...]]) -> None:
    async def work(here: Side, there: Side) -> None:
        for step, *values in steps:
            if step == "merge":
                await there.merge(here)
            elif (step == "make") != (values[0] in here.rows()):
                await getattr(here, step)(*values)
        await there.merge(here)
        assert there.rows() == here.rows()
        # As a server that reads only the other log would have it.
        active: dict[str, set[str]] = {}
        for record in await there.log.read(0, 1 << 30):
            if not isinstance(record, ControlRecord):
                continue
            server, control = record.server, record.control
            for id in [*control.ids, *(id for id, _ in control.versions)]:
                on = active.setdefault(id, set())
                if control.kind == "activate":
                    assert not on
                    on.add(server)
                elif control.kind in ("deactivate", "move"):
                    on.discard(server)
            if control.kind == "move":  # it begins where this version is stored
                for id, version in control.versions:
                    active[id] |= {server} & {here.stored[id, version]}
        hosts = {id: {row.server} for id, row in here.rows().items()}
        assert {id: on for id, on in active.items() if on} == hosts
        # Once more, from the beginning: nothing is news.
        head = there.log.head
        await there.merge(here, after=0)
        assert there.log.head == head

    run(work)


def test_an_end_wins_over_an_older_state_that_comes_later() -> None:
    async def work(here: Side, there: Side) -> None:
        await here.make("a", 1)
        await there.merge(here)
        await there.end("a")
        await here.merge(there)
        assert here.rows() == there.rows() == {}
        await there.merge(here, after=0)
        assert there.rows() == {}

    run(work)


def test_one_that_came_and_went_meanwhile_has_an_end_in_the_other_log() -> None:
    async def work(here: Side, there: Side) -> None:
        await there.merge(here)
        head = there.log.head
        await here.make("brief", 1, "s2")
        await here.end("brief")
        await there.merge(here)
        assert there.controls(head) == [("deactivate", "s2", ["brief"])]

    run(work)


def test_of_two_topics_of_one_name_the_later_stays_on_both_sides() -> None:
    async def work(here: Side, there: Side) -> None:
        await here.make("a", 1)
        draft = await there.topics.draft(TOPIC, {"price": "number", "symbol": "string"}, None)
        await there.topics.put(draft, None)
        await there.merge(here)
        await here.merge(there)
        await there.merge(here)
        assert here.topics.get(TOPIC).uid == there.topics.get(TOPIC).uid
        assert set(here.topics.get(TOPIC).schema.attributes) == {"price", "symbol"}
        assert here.rows() == there.rows() == {}

    run(work)


def test_a_server_that_another_dispatcher_knows_gets_records_from_a_join_on() -> None:
    async def work(here: Side, there: Side) -> None:
        await here.make("a", 1)
        await there.merge(here)
        assert [kind for kind, server, _ in there.controls() if server == "s1"] == ["join", "activate"]
        assert there.network.members.get("s1") is not None
        assert "s1" in there.network.table.servers

    run(work)


def test_without_others_nothing_is_noted(tmp_path: Path) -> None:
    async def work() -> None:
        network = Services(Settings(data=tmp_path, secret="s" * 16))
        network.log.start()
        topics = Topics(network.log)
        await topics.put(await topics.draft(TOPIC, {"price": "number"}, None), None)
        assert network.log._reader.execute("SELECT count(*) FROM changes").fetchone() == (0,)
        await network.stop()
        # With others, later: they learn of what was there before.
        again = Services(Settings(data=tmp_path, secret="s" * 16, peers=("http://other",)))
        [state] = change_feed.read(again.log._reader, 0).topics
        assert state.name == TOPIC
        again.log.start()
        await again.stop()

    asyncio.run(work())
