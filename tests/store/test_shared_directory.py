"""Several logs on one directory: a change is in all of them, and nobody commits without knowing it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from dispatcher.store import changes, directory, retention, servers, topic_rows
from dispatcher.store.changes import Gap
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log, LogRow
from dispatcher.store.interface import Kind, Transaction
from dispatcher.store.postgres.log import PostgresLog
from dispatcher.store.records import ControlRecord, EventsRecord, Record
from dispatcher.store.topic_rows import Topic
from edn import protocol
from edn.errors import Conflict
from edn.model.schema import Schema
from edn.runtime.postgres.database import Database
from edn.runtime.sql import Fenced
from tests.postgres import Cluster
from tests.store.conftest import BOX, Engine, new_database

STORED = protocol.Stored(3, 7)


@pytest.fixture
def database(postgres: Cluster) -> Database:
    return new_database(postgres)


class Owner:
    """A log, and all that its event loop hears, in order."""

    def __init__(self, database: Database, name: str) -> None:
        self.heard: list[Record | Gap] = []
        self.log = PostgresLog(database, name, box=BOX, url=f"http://{name}", on_commit=self.heard.extend)
        self.log.on_gap = self.heard.append

    def offsets(self) -> list[int]:
        return [one.last for one in self.heard if not isinstance(one, Gap)]

    def kinds(self) -> list[str]:
        """What was heard: kinds of control records, `events`, and `gap`."""
        return [
            "gap"
            if isinstance(one, Gap)
            else one.control.kind
            if isinstance(one, ControlRecord)
            else "events"
            for one in self.heard
        ]


@asynccontextmanager
async def owners(database: Database, *names: str) -> AsyncIterator[list[Owner]]:
    made = [Owner(database, name) for name in names]
    for one in made:
        one.log.start()
        await one.log.refresh()  # the opening of the others is a change, too
        one.heard.clear()
    try:
        yield made
    finally:
        for one in made:
            await one.log.stop()


def run(database: Database, work: Callable[..., Awaitable[None]], names: Sequence[str] = ("a", "b")) -> None:
    async def main() -> None:
        async with owners(database, *names) as made:
            await work(*made)

    asyncio.run(main())


def subscription(id: str, server: str = "s1", **more: Any) -> Subscription:
    values = {"version": 5, "owner": "o", "topic": 1, "filter": None, "url": "http://h/", "created": 1}
    return Subscription(id=id, recipient=None, expires=None, server=server, **{**values, **more})


def begin(id: str, **more: Any) -> Callable[[Transaction], int]:
    def operation(transaction: Transaction) -> int:
        one = subscription(id, **more)
        directory.insert(transaction.connection, one, frozenset())
        transaction.note(Kind.SUBSCRIPTION, id, server=one.server, more=1, stored=STORED)
        return transaction.append_control(one.server, "activate", versions=[(id, one.version)])

    return operation


def events(count: int = 1) -> Callable[[Transaction], list[str]]:
    def operation(transaction: Transaction) -> list[str]:
        nothing: list[Any] = [None] * count
        return transaction.append_events(1, nothing, nothing, b"{}\n" * count, np.zeros((count, 1)))

    return operation


def publish(log: Log) -> asyncio.Future[list[str]]:
    return log.submit(events(), changes=False)


def test_a_change_is_in_every_log_before_the_events_that_follow_it(database: Database) -> None:
    async def work(a: Owner, b: Owner) -> None:
        await publish(b.log)
        await a.log.submit(begin("s"))
        await publish(b.log)
        assert b.kinds() == ["events", "gap", "activate", "events"]
        assert b.offsets() == [1, 2, 3]
        [gap] = [one for one in b.heard if isinstance(one, Gap)]
        assert [(one.id, epoch, seq) for one, epoch, seq in gap.versions] == [("s", 3, 7)]
        assert gap.loads == {"s1": 1}
        assert a.kinds() == ["activate"]
        assert [record.last for record in await b.log.read(0, 1 << 20)] == [1, 2, 3]

    run(database, work)


def test_an_append_sees_a_topic_as_the_last_change_left_it_whoever_made_it(database: Database) -> None:
    def touch(transaction: Transaction) -> None:
        topic_rows.touch_advertisements(transaction, 1)
        transaction.note(Kind.ADVERTISEMENT, "1")

    def create(transaction: Transaction) -> None:
        topic_rows.insert(transaction, Topic(1, "t", 1, Schema.parse({"x": "number"}), "bitmap", 0))
        transaction.note(Kind.TOPIC, "1")

    async def work(a: Owner, b: Owner) -> None:
        async def seen(owner: Owner) -> int:
            state = await owner.log.submit(lambda one: topic_rows.state_in(one, 1), changes=False)
            assert state is not None
            return state.advertised

        await a.log.submit(create)
        for number in range(3):
            assert [await seen(b), await seen(b), await seen(a)] == [number] * 3
            await (a if number % 2 else b).log.submit(touch)

    run(database, work)


def test_an_idle_owner_hears_of_a_change(database: Database) -> None:
    async def work(a: Owner, b: Owner) -> None:
        await a.log.submit(begin("s"))
        async with asyncio.timeout(30):
            while b.kinds() != ["gap", "activate"]:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)

    run(database, work)


def test_changes_of_two_owners_at_once_are_in_one_order(database: Database) -> None:
    async def work(a: Owner, b: Owner) -> None:
        await asyncio.gather(
            *(one.log.submit(begin(f"{name}{n}")) for n in range(30) for name, one in (("a", a), ("b", b))),
            *(publish(one.log) for _ in range(30) for one in (a, b)),
        )
        for one in (a, b):
            await one.log.refresh()
            assert one.offsets() == list(range(1, one.log.head + 1))
        orders = []
        for one in (a, b):
            found = [record for record in one.heard if isinstance(record, ControlRecord)]
            orders.append([version for record in found for version in record.control.versions])
        assert len(orders[0]) == 60
        assert orders[0] == orders[1]

    run(database, work)


def test_a_change_without_rows_is_no_gap_that_cannot_be_read(database: Database) -> None:
    async def work(a: Owner, b: Owner) -> None:
        for _ in range(3):
            await a.log.submit(lambda transaction: transaction.append_control("s1", "join"))
        await a.log.submit(begin("s"))
        await publish(b.log)
        kinds = [kind for kind in b.kinds() if kind != "gap"]
        assert kinds == ["join", "join", "join", "activate", "events"]

    run(database, work)


def test_an_owner_that_missed_deleted_changes_must_start_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "KEPT", 2)
    monkeypatch.setattr(changes, "STEP", 1)

    async def work(a: Owner) -> None:
        ended = threading.Event()
        b = PostgresLog(database, "b", box=BOX, on_failure=ended.set)  # not started: it hears nothing
        for number in range(5):
            await a.log.submit(begin(f"s{number}"))
        b.start()
        with pytest.raises(Fenced, match="must start again"):
            await publish(b)
        assert ended.wait(30)
        await b.stop()

    run(database, work, ("a",))


def test_an_operation_that_fails_leaves_no_log_changed(database: Database) -> None:
    async def work(a: Owner, b: Owner) -> None:
        def fails(transaction: Transaction) -> None:
            begin("s")(transaction)
            raise Conflict("no")

        outcomes = [a.log.submit(one) for one in (begin("before"), fails, begin("after"))]
        await asyncio.gather(*outcomes, return_exceptions=True)
        await b.log.refresh()
        for one in (a, b):
            found = [record for record in one.heard if isinstance(record, ControlRecord)]
            assert [record.control.versions[0][0] for record in found] == ["before", "after"]
            assert one.offsets() == [1, 2]

    run(database, work)


def test_an_operation_on_the_own_log_cannot_change_the_directory(database: Database) -> None:
    async def work(a: Owner, b: Owner) -> None:
        with pytest.raises(AssertionError, match="must be submitted as a change"):
            await a.log.submit(begin("s"), changes=False)
        await publish(a.log)

    run(database, work)


def test_an_id_of_a_publisher_is_one_event_whoever_receives_it(engine: Engine) -> None:
    """Engines without a second owner: in one log."""
    digests = {"x": b"1" * 16, "y": b"2" * 16}

    def insert(found: dict[str, bytes]) -> Callable[[Transaction], dict[str, bytes]]:
        return lambda transaction: retention.insert_events(
            transaction.connection, 1, found, transaction.steady
        )

    async def work(log: Log) -> None:
        assert await log.submit(insert(digests), changes=False) == {}
        again = await log.submit(insert({"y": b"3" * 16, "z": b"4" * 16}), changes=False)
        assert again == {"y": b"2" * 16}
        assert await log.submit(insert({}), changes=False) == {}

    engine.run(work)


def test_the_same_ids_at_two_owners_at_once_are_inserted_once(database: Database) -> None:
    async def work(a: Owner, b: Owner) -> None:
        def insert(number: int) -> Callable[[Transaction], int]:
            named = {f"{number}-{place}": bytes(16) for place in range(3)}

            def operation(transaction: Transaction) -> int:
                known = retention.insert_events(transaction.connection, 1, named, transaction.steady)
                return len(named) - len(known)

            return operation

        inserted = await asyncio.gather(
            *(one.log.submit(insert(number), changes=False) for number in range(200) for one in (a, b))
        )
        assert sum(inserted) == 600

    run(database, work)


def test_a_log_that_is_opened_later_begins_with_what_is_active(database: Database) -> None:
    async def work(a: Owner) -> None:
        def register(transaction: Transaction) -> None:
            for server in ("s1", "s2"):
                servers.put(transaction, server, "http://s", "key", 1)
                transaction.append_control(server, "join")

        def change(transaction: Transaction) -> None:
            directory.renew(transaction.connection, "two", 99)
            directory.pause(transaction.connection, "three", True)

        await a.log.submit(register)
        for id, server in (("one", "s1"), ("two", "s2"), ("three", "s2")):
            await a.log.submit(begin(id, server=server))
        await a.log.submit(change)
        b = await asyncio.to_thread(Owner, database, "b")
        b.log.start()
        try:
            found = [record for record in await b.log.read(0, 1 << 20) if isinstance(record, ControlRecord)]
            written = [(one.server, one.control.kind, one.control.versions) for one in found]
            assert written == [
                ("s1", "join", []),
                ("s1", "activate", [("one", 5)]),
                ("s2", "join", []),
                ("s2", "activate", [("two", 5), ("three", 5)]),
                ("s2", "pause", []),
                ("s2", "renew", []),
            ]
            assert found[4].control.ids == ["three"]
            assert found[5].control.expiries == [("two", 99)]
            assert all(one.control.shared for one in found if one.control.kind == "join")
            await a.log.refresh()
            follows = [
                one for one in a.heard if isinstance(one, ControlRecord) and one.control.kind == "follow"
            ]
            assert [(one.server, one.control.log) for one in follows] == [("s1", b.log.id), ("s2", b.log.id)]
            assert [row.name for row in await a.log.living() if row.lease > 0] == sorted(
                ["a", "b"], key=lambda name: a.log.id if name == "a" else b.log.id
            )
        finally:
            await b.log.stop()

    run(database, work, ("a",))


def test_an_owner_of_the_same_name_continues_the_log(database: Database) -> None:
    ids = []

    async def work(a: Owner) -> None:
        ids.append(a.log.id)
        await publish(a.log)

    run(database, work, ("a",))
    run(database, work, ("a",))
    run(database, work, ("b",))
    assert ids[0] == ids[1] != ids[2]


def test_events_have_ids_of_their_log(database: Database) -> None:
    async def work(a: Owner, b: Owner) -> None:
        made = [await publish(one.log) for one in (a, b)]
        assert made[0] != made[1]
        assert all(isinstance(record, EventsRecord) for one in (a, b) for record in one.heard)

    run(database, work)


# -- logs that are taken over ---------------------------------------------------------------------------


def end_lease(postgres: Cluster, database: Database, log: str) -> None:
    postgres.execute(
        f"UPDATE {database.schema}.leases SET until = clock_timestamp() - INTERVAL '1 minute'"
        f" WHERE name = 'log:{log}'"
    )


async def row_of(log: Log, id: str) -> LogRow:
    [found] = [row for row in await log.living() if row.log == id]
    return found


async def adopt(log: Log, id: str) -> Log:
    """Takes over a log; its owner may renew the lease in between."""
    while True:
        taken = await log.adopt(await row_of(log, id))
        if taken is not None:
            return taken


def test_a_log_without_an_owner_is_taken_over_drained_and_retired(
    database: Database, postgres: Cluster
) -> None:
    async def work(a: Owner) -> None:
        async with owners(database, "b") as [b]:
            left = b.log.id
            before = await row_of(a.log, left)
            await publish(b.log)
            assert await a.log.adopt(before) is None, "its owner lives: the lease has changed"
        end_lease(postgres, database, left)
        taken = await adopt(a.log, left)
        assert (taken.id, taken.head) == (left, 1)
        assert {row.log: row.state for row in await a.log.living()} == {a.log.id: "open", left: "draining"}
        taken.start()
        try:
            # Until it is retired, it gets every change.
            await a.log.submit(begin("s"))
            await taken.refresh()
            assert taken.head == 2
            assert not await a.log.retire(left, 1, ["s1"]), "there is more in it"
            assert await a.log.retire(left, 2, ["s1"])
            assert not await a.log.retire(left, 2, ["s1"])
            [retired] = [one for one in a.heard if isinstance(one, ControlRecord)][-1:]
            assert (retired.server, retired.control.kind, retired.control.log) == ("s1", "retire", left)
            assert [row.log for row in await a.log.living()] == [a.log.id]
            await a.log.submit(begin("t"))
            await taken.refresh()
            assert taken.head == 2
            await taken.forget()
            assert await taken.read(0, 1 << 20) == []
        finally:
            await taken.stop()
        async with owners(database, "b") as [again]:
            assert again.log.id != left

    run(database, work, ("a",))


def test_a_log_with_retained_events_or_replays_is_not_retired(database: Database, postgres: Cluster) -> None:
    def retained(transaction: Transaction) -> None:
        transaction.append_events(1, [None], [None], b"{}\n", np.zeros((1, 1)), np.array([1000.0]))

    async def work(a: Owner) -> None:
        async with owners(database, "b") as [b]:
            await b.log.submit(retained, changes=False)
            left = b.log.id
        end_lease(postgres, database, left)
        taken = await adopt(a.log, left)
        taken.start()
        assert await taken.is_needed()
        assert not await a.log.retire(left, 1, [])
        await taken.stop()
        # Given up again, it is continued by its own dispatcher.
        async with owners(database, "b") as [again]:
            assert again.log.id == left
            assert {row.state for row in await a.log.living()} == {"open"}

    run(database, work, ("a",))


def test_a_former_owner_cannot_commit_after_a_takeover(database: Database, postgres: Cluster) -> None:
    async def work(a: Owner) -> None:
        ended = threading.Event()
        b = PostgresLog(database, "b", box=BOX, on_failure=ended.set)
        b.start()
        await publish(b)
        end_lease(postgres, database, b.id)
        taken = await adopt(a.log, b.id)
        for submitted in (publish(b), b.submit(begin("s"))):
            with pytest.raises(Fenced):
                await submitted
        assert ended.wait(30)
        await b.stop()
        assert [record.last for record in await taken.read(0, 1 << 20)] == [1]
        taken.close()

    run(database, work, ("a",))
