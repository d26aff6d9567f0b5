"""Finding dead owners: by silence, never by a clock; a living owner keeps its row."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from edn.runtime.postgres import lease as leases
from edn.runtime.postgres import writer
from edn.runtime.postgres.database import Database, Session
from edn.runtime.postgres.lease import Seen, Silence
from edn.runtime.postgres.takeover import Candidate, Watch
from edn.runtime.postgres.writer import NotTaken
from edn.runtime.process import CannotStart
from edn_server.storage.postgres.spares import Spares
from edn_server.storage.postgres.store import PostgresStore, ServerRuns
from edn_server.storage.writer import Call
from tests.network import until
from tests.postgres import Cluster
from tests.store.conftest import BOX, new_database

#: as written by a node whose clock was ahead
SEEMS_TO_LAST = "UPDATE {}.leases SET owner = 'dead', until = now() + INTERVAL '1 hour', seconds = 0.6"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.6)
    monkeypatch.setattr(writer, "RENEW_SECONDS", 0.15)


@pytest.fixture
def database(postgres: Cluster) -> Database:
    return new_database(postgres)


@contextlib.contextmanager
def owned(database: Database, shard: str = "s1") -> Iterator[PostgresStore]:
    store = PostgresStore(database, shard, box=BOX)
    store.start(lambda _: None, lambda: None)
    try:
        # The long lease of the start ends with the first commit.
        store.commit(Call(lambda _: None)).result(30)
        yield store
    finally:
        store.close()


def seen(postgres: Cluster, database: Database) -> Candidate:
    [(fence, commits, seconds)] = postgres.execute(
        f"SELECT fence, commits, seconds FROM {database.schema}.leases WHERE name = 'shard:s1'"
    )
    assert isinstance(fence, int)
    assert isinstance(commits, int)
    assert isinstance(seconds, float)
    return Candidate("s1", Seen(fence, commits), seconds)


def test_silence_is_counted_from_the_last_change() -> None:
    silence = Silence()
    first, second = Seen(1, 1), Seen(1, 2)
    assert silence.of("a", first, 10.0) == 0
    assert silence.of("a", first, 13.0) == 3
    assert silence.of("a", second, 14.0) == 0
    assert silence.of("b", first, 14.0) == 0
    assert silence.of("a", second, 20.0) == 6


def test_a_living_owner_is_never_dead_whatever_the_clock_of_the_database_says(
    database: Database, postgres: Cluster
) -> None:
    with owned(database) as store:
        watch = Watch(database, lambda _: [seen(postgres, database)])
        try:
            renewed = store._link.lease.commits + 8
            while store._link.lease.commits < renewed:
                # As after a failover to a node whose clock is ahead: by its clock, all leases are over.
                postgres.execute(f"UPDATE {database.schema}.leases SET until = now() - INTERVAL '1 hour'")
                assert watch.dead() == []
                assert store.is_owned
        finally:
            watch.close()


def test_a_dead_owner_is_found_although_its_lease_seems_to_last(
    database: Database, postgres: Cluster
) -> None:
    with owned(database):
        pass
    postgres.execute(SEEMS_TO_LAST.format(database.schema))
    watch = Watch(database, lambda _: [seen(postgres, database)])
    [dead] = until("the silence", watch.dead)
    watch.close()
    with pytest.raises(NotTaken):
        PostgresStore(database, "s1", box=BOX, seen=Seen(dead.seen.fence, dead.seen.commits + 1))
    taken = PostgresStore(database, "s1", box=BOX, seen=dead.seen)
    taken.close()
    # Under its own name a process waits for the silence, too.
    postgres.execute(SEEMS_TO_LAST.format(database.schema))
    with owned(database):
        pass


def test_a_second_process_of_a_living_server_is_refused_with_one_line(database: Database) -> None:
    with owned(database) as first:
        with pytest.raises(
            ServerRuns, match=r'server "s1" must not run twice: the process on .* pid \d+ owns'
        ):
            PostgresStore(database, "s1", box=BOX)
        assert first.is_owned
    with owned(database):  # it has ended, and nobody waits for its lease
        pass


def test_an_outage_is_no_silence(database: Database, postgres: Cluster) -> None:
    with owned(database):
        pass
    postgres.execute(f"UPDATE {database.schema}.leases SET owner = 'dead', seconds = 0.5")

    def read(session: Session) -> list[Candidate]:
        session.execute("SELECT 1")
        return [seen(postgres, database)]

    watch = Watch(database, read)
    try:
        assert watch.dead() == []
        threading.Event().wait(0.6)
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE application_name = 'edn: spare of {database.schema}'"
        )
        assert watch.dead() == [], "the session was lost, and with it what was seen"
        assert watch.dead() == []
        assert until("the silence after the outage", watch.dead)
    finally:
        watch.close()


def test_time_in_which_no_commit_is_answered_is_no_silence(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replication hangs: the primary answers reads, and nobody can renew."""
    now, hangs = 100.0, 0.0
    monkeypatch.setattr("edn.runtime.postgres.takeover.clock.monotonic", lambda: now)

    def prove(watch: Watch, session: Session) -> None:
        nonlocal now
        now += hangs

    monkeypatch.setattr(Watch, "_prove", prove)
    watch = Watch(database, lambda _: [Candidate("s1", Seen(1, 1), 6.0)])
    try:
        for _ in range(6):
            assert watch.dead() == []
            now += 0.5
        hangs = 4.5  # less than the deadline of a look
        assert watch.dead() == []
        hangs = 0.0
        looks = 0
        while not watch.dead():
            now += 0.5
            looks += 1
        assert 2 <= looks <= 5, "the time before and after it counts"
    finally:
        watch.close()


def test_a_spare_commits_with_every_look(database: Database, postgres: Cluster) -> None:
    with owned(database):
        pass
    watch = Watch(database, lambda _: [])
    for _ in range(3):
        watch.dead()
    watch.close()
    assert postgres.execute(f"SELECT number FROM {database.schema}.proofs WHERE name = 'spare'") == [(3,)]


def test_a_spare_refuses_servers_that_do_not_exist(database: Database) -> None:
    spares = Spares(database, only=["s1"], stopped_seconds=1)
    with pytest.raises(CannotStart, match=r'--spare-for must name servers .*it has none\), got "s1"'):
        spares.check()
