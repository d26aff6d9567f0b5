"""The promises of a server's store: identity, order, atomicity, memory after the commit, readers, row ids."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edn.errors import Conflict
from edn.runtime.postgres.database import Database
from edn_server.policies import UsageLimits
from edn_server.storage import dead_letters, logs, outbox, payloads, replays, sink_state, usage, versions
from edn_server.storage.database import SqliteStore, save_clock, saved_clock
from edn_server.storage.dead_letters import Letter
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import NewRow
from edn_server.storage.payloads import Event
from edn_server.storage.postgres.store import PostgresStore
from edn_server.storage.store import Store
from edn_server.storage.writer import Call, Job
from tests.postgres import Cluster
from tests.store.conftest import BOX, new_database

LIMITS = UsageLimits()
ADDRESS = "//https://example.org/hook"


@contextlib.contextmanager
def opened(place: Path | Database) -> Iterator[Store]:
    store: Store = (
        PostgresStore(place, "s1", box=BOX) if isinstance(place, Database) else SqliteStore(place / "server")
    )
    failures: list[BaseException] = []
    store.start(failures.append, lambda: None)
    try:
        yield store
    finally:
        store.close()
    assert failures == []


def run(store: Store, function: Any) -> Any:
    return store.commit(Call(function)).result(30)


def rows(db: Connection, frame_id: int, count: int, address: str = ADDRESS) -> outbox.Written:
    """Write a frame with one event per row."""
    events = [(place, Event(1, f"e{place}", place, b"{}")) for place in range(count)]
    new = [
        (
            outbox.at(address),
            NewRow(1, outbox.HEADER.pack(1, 1) + bytes([place, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0])),
        )
        for place in range(count)
    ]
    return outbox.write(db, frame_id, events, new, LIMITS)


class Recorded(Job[int]):
    def __init__(self, number: int, seen: list[str], *, fails: bool = False) -> None:
        self.number, self.seen, self.fails = number, seen, fails

    def work(self, db: Connection) -> int:
        logs.advance(db, f"log{self.number}", 1, self.number, None)
        if self.fails:
            raise Conflict("no")
        return self.number

    def done(self, result: int) -> None:
        self.seen.append(f"done {result}")

    def undo(self) -> None:
        self.seen.append(f"undone {self.number}")


def test_the_key_stays_and_the_epoch_grows(place: Path | Database) -> None:
    with opened(place) as first:
        key, epoch = first.identity.key, first.identity.epoch
    with opened(place) as second:
        assert second.identity.key == key
        assert second.identity.epoch > epoch


def test_a_failing_job_takes_nothing_of_its_neighbours_and_memory_follows_the_commit(
    place: Path | Database,
) -> None:
    seen: list[str] = []
    with opened(place) as store:
        hold, go_on = threading.Event(), threading.Event()

        def wait(_: Connection) -> None:
            hold.set()
            assert go_on.wait(30)

        first = store.commit(Call(wait))
        assert hold.wait(30)
        jobs = [store.commit(Recorded(number, seen, fails=number == 2)) for number in (1, 2, 3)]
        go_on.set()
        first.result(30)
        assert [job.exception(30) is None for job in jobs] == [True, False, True]
        assert [row.log for row in run(store, logs.logs)] == ["log1", "log3"]
    assert sorted(seen) == ["done 1", "done 3", "undone 2"]
    with opened(place) as again:
        assert {row.log: row.cursor for row in run(again, logs.logs)} == {"log1": 1, "log3": 3}


def test_row_ids_are_consecutive_and_never_used_again(place: Path | Database) -> None:
    with opened(place) as store:
        written = run(store, lambda db: rows(db, 1, 5))
        assert [row.id for row in written.ready] == [1, 2, 3, 4, 5]
        assert run(store, lambda db: outbox.settle(db, [(row.id, 1) for row in written.ready])) == 5
        assert run(store, outbox.backlog) == 0
        assert run(store, lambda db: db.execute("SELECT count(*) FROM events").fetchone()[0]) == 0
        assert run(store, outbox.take_id) == 6
    with opened(place) as again:
        assert run(again, outbox.last_row) == 6
        assert [row.id for row in run(again, lambda db: rows(db, 2, 2)).ready] == [7, 8]


def test_row_ids_of_a_job_that_fails_are_given_to_the_next_one(place: Path | Database) -> None:
    def fail(db: Connection) -> None:
        rows(db, 2, 4)
        raise Conflict("no")

    with opened(place) as store:
        assert [row.id for row in run(store, lambda db: rows(db, 1, 2)).ready] == [1, 2]
        assert isinstance(store.commit(Call(fail)).exception(30), Conflict)
        assert run(store, outbox.last_row) == 2
        assert [row.id for row in run(store, lambda db: rows(db, 3, 2)).ready] == [3, 4]
        assert run(store, lambda db: db.execute("SELECT max(id) FROM outbox").fetchone()[0]) == 4
        assert run(store, outbox.last_row) == 4


def test_payloads_of_a_frame_stay_as_long_as_one_of_its_rows(place: Path | Database) -> None:
    with opened(place) as store:
        first, second = (run(store, lambda db, frame=frame: rows(db, frame, 3)).ready for frame in (1, 2))

        def settle(*going: outbox.Row) -> int:
            settled: int = run(store, lambda db: outbox.settle(db, [(row.id, row.frame_id) for row in going]))
            return settled

        def stored() -> list[int]:
            return [len(run(store, lambda db, f=f: payloads.read(db, f, range(3)))) for f in (1, 2)]

        assert settle(*first[:2], second[0]) == 3
        assert stored() == [3, 3]
        assert settle(first[2], second[1]) == 2
        assert stored() == [0, 3]
        assert settle(second[2]) == 1
        assert stored() == [0, 0]


def test_payloads_are_read_and_trimmed_by_place_wherever_they_are_stored(place: Path | Database) -> None:
    large = payloads.LARGE
    sizes = {spot: large if spot in (0, 70, 71) else spot + large - 200 for spot in range(0, 200, 5)}
    sizes |= {70: large, 71: large - 1}
    events = {spot: Event(spot, f"é{spot}", -spot, b"x" * size, "trace") for spot, size in sizes.items()}
    with opened(place) as store:
        run(store, lambda db: payloads.write(db, 7, events.items()))
        run(store, lambda db: payloads.write(db, 8, [(0, events[0])]))
        for wanted in ([0], [70, 71], [195, 5, 10], [1, 2], list(events)):
            found = run(store, lambda db, wanted=wanted: payloads.read(db, 7, wanted))
            assert found == {spot: events[spot] for spot in wanted if spot in events}
        needed = {0, 5, 71, 195}
        assert run(store, lambda db: payloads.trim(db, 7, needed)) == len(events) - len(needed)
        assert run(store, lambda db: payloads.trim(db, 7, needed)) == 0
        left = run(store, lambda db: payloads.read(db, 7, range(200)))
        assert left == {spot: events[spot] for spot in needed}
        assert run(store, lambda db: payloads.read(db, 8, [0])) == {0: events[0]}
        assert run(store, payloads.newest_frame_id) == 8
        run(store, lambda db: payloads.delete_unused(db, [7]))
        assert run(store, lambda db: payloads.read(db, 7, range(200))) == {}


def test_a_reader_sees_committed_rows_only(place: Path | Database) -> None:
    with opened(place) as store:
        reader = store.reader("test")
        run(store, lambda db: rows(db, 1, 3))
        written, go_on = threading.Event(), threading.Event()

        def slow(db: Connection) -> None:
            rows(db, 2, 3)
            outbox.backlog(db)  # so that the rows are written now
            written.set()
            assert go_on.wait(30)

        async def main() -> None:
            assert await reader.reading(outbox.backlog) == 3
            waiting = store.commit(Call(slow))
            assert await asyncio.to_thread(written.wait, 30)
            assert await reader.reading(outbox.backlog) == 3
            go_on.set()
            await asyncio.wrap_future(waiting)
            page = await reader.reading(outbox.page, ADDRESS, 4)
            assert [row.id for row in page.rows] == [1, 2, 3, 4]
            assert page.has_more
            assert [row.places for row in page.rows] == [[0], [1], [2], [0]]
            events = await reader.reading(payloads.read, 2, [0, 2])
            assert {place: event.id for place, event in events.items()} == {0: "e0", 2: "e2"}

        asyncio.run(main())
        reader.close()


def test_two_shards_do_not_see_each_other(postgres: Cluster) -> None:
    place = new_database(postgres)
    with opened(place) as one:
        run(one, lambda db: rows(db, 1, 3))
        other = PostgresStore(place, "s2", box=BOX)
        other.start(lambda _: None, lambda: None)
        assert run(other, outbox.backlog) == 0
        assert [row.id for row in run(other, lambda db: rows(db, 1, 1)).ready] == [1]
        other.close()
        assert run(one, outbox.backlog) == 3


def test_state_of_sinks_logs_pauses_letters_and_usage_is_kept(place: Path | Database) -> None:
    def write(db: Connection) -> None:
        sink_state.store_health(db, ADDRESS, b"1")
        sink_state.store_health(db, ADDRESS, b"2")
        sink_state.store_attempts(db, ADDRESS, 5, b"a")
        sink_state.store_consent(db, "https://a", b"c")
        logs.follow(db, "old", 1)
        logs.raise_incarnation(db, "old", 7)
        logs.raise_incarnation(db, "old", 3)
        replays.pause(db, "one", "old", 1)
        replays.pause(db, "one", "new", 2)
        replays.begin(db, [4], replays.Source("log", "old"))
        logs.retire(db, ["old"], "new")
        save_clock(db, "later")
        versions.count_store(db)
        versions.store_counters(db, [(0, b"x")], "{}")
        versions.store_counters(db, [(0, b"y")], "{}")
        letter = Letter(1, "acme//https://a", 10, 5, 3, None, "no", 2)
        dead_letters.insert(db, letter, b"body", ["s1", "s2"])
        outbox.mark(db, "dropped", "stream:s1", 5)
        outbox.mark(db, "dropped", "stream:s1", 3)
        usage.count(db, "s1", usage.PAUSED, 2)
        usage.count(db, "s1", usage.PAUSED, 3)

    with opened(place) as store:
        run(store, write)
    with opened(place) as again:
        assert run(again, sink_state.health) == [(ADDRESS, b"2")]
        assert run(again, lambda db: sink_state.attempts(db, ADDRESS)) == b"a"
        assert run(again, sink_state.consents) == [("https://a", b"c")]
        assert run(again, lambda db: logs.incarnation(db, "old")) == 7
        assert run(again, lambda db: logs.others_of(db, "new")) == []
        assert run(again, replays.pauses) == [("one", "new", 1)]
        assert run(again, replays.replays) == []
        assert run(again, saved_clock) == "later"
        assert run(again, versions.stores) == 1
        assert run(again, versions.counter_pages) == [(0, b"y")]
        assert [one.id for one in run(again, lambda db: dead_letters.page(db, "s2", (0, 0), 9))] == [1]
        assert run(again, lambda db: usage.used(db, usage.DEAD, "acme")) == 4
        assert run(again, lambda db: outbox.gone(db, "stream:s1").dropped) == 5
        assert run(again, lambda db: usage.subscription_usage(db, "s1", [])).dropped == 5
        assert run(again, lambda db: dead_letters.count(db, "s1")) == 1
        assert run(again, lambda db: dead_letters.since(db, "s1", 0, 9)) == [1]
        assert run(again, lambda db: dead_letters.find(db, 1))[1] == b"body"
        run(again, lambda db: dead_letters.remove(db, [1]))
        assert run(again, lambda db: usage.used(db, usage.DEAD, "acme")) == 0


def test_streams_beyond_a_limit_lose_their_oldest_rows_and_count_them(place: Path | Database) -> None:
    limits = UsageLimits(stream=2000)
    composition = outbox.HEADER.pack(1, 1) + bytes([0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0])
    with opened(place) as store:
        drops = 0
        for frame in range(1, 6):
            events = [(0, Event(1, "e", 1, b"x" * 500))]
            row = (outbox.at("stream:s1"), NewRow(1, composition))
            written = run(store, lambda db, e=events, r=row, f=frame: outbox.write(db, f, e, [r], limits))
            drops += written.drops.total
        assert drops == 5 - run(store, outbox.backlog) > 0
        assert run(store, lambda db: usage.used(db, usage.UNREAD, "")) <= 2000
        assert run(store, usage.streams) == [("s1", 5 - drops)]
