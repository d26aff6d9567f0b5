"""UsageLimits of bytes per tenant: what is counted, what goes at a limit, and that nothing goes silently."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deliverykit import REFUSED, Receiver, asking, fill, run
from hypothesis import given, settings
from hypothesis import strategies as st
from serverkit import Kit, activate, control, item, segment, topic

from edn.model.namespace import owner_of
from edn_server.policies import UsageLimits
from edn_server.sinks import sse as streams
from edn_server.storage import addresses, outbox, usage
from edn_server.storage import dead_letters as letter_table

TOPICS = {"": 1, "acme": 2, "other": 3}
LARGE = {"symbol": "x" * 5000, "price": 31.0}


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    opened = Kit(tmp_path / "s1")
    yield opened
    opened.close()


def read(kit: Kit) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(kit.folder.connect(read_only=True))


def check(kit: Kit) -> None:
    """The counters are what a scan finds."""
    with read(kit) as db:
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for subscription, state, events, size in db.execute(
            "SELECT subscription, state, events, bytes FROM outbox WHERE bytes > 0"
        ):
            before = found.get((subscription, usage.kind_of(state)), (0, 0))
            found[subscription, usage.kind_of(state)] = (before[0] + events, before[1] + size)
        kept = db.execute("SELECT subscription, kind, events, bytes FROM kept").fetchall()
        assert {(name, kind): (events, size) for name, kind, events, size in kept} == found
        sums: dict[tuple[str, str], int] = {}
        for name, kind, _, size in kept:
            key = (kind, owner_of(name))
            sums[key] = sums.get(key, 0) + size
        for address, size in db.execute("SELECT address, length(body) FROM dead_letters"):
            key = (usage.DEAD, addresses.tenant_of(address))
            sums[key] = sums.get(key, 0) + size
        stored = db.execute("SELECT kind, tenant, bytes FROM usage WHERE bytes != 0").fetchall()
        assert {(kind, tenant): size for kind, tenant, size in stored} == sums


def events_kept(kit: Kit, subscription: str) -> list[str]:
    return [
        entry["event"]["id"]
        for row in kit.rows()
        if row.subscription == subscription and not row.address
        for entry in kit.body(row)["notifications"]
    ]


def events_at(kit: Kit, prefix: str) -> list[str]:
    return [
        entry["event"]["id"]
        for row in kit.rows()
        if row.address.startswith(prefix)
        for entry in kit.body(row)["notifications"]
    ]


def standing(kit: Kit, name: str) -> usage.SubscriptionUsage:
    with read(kit) as db:
        return usage.subscription_usage(db, name, [name])


def store(kit: Kit, id: str, tenant: str, **fields: Any) -> None:
    info = topic(TOPICS[tenant], tenant=tenant)
    kit.store(item(id, tenant=tenant, **fields), info=info)


def publish(kit: Kit, at: int, *tenants: str) -> int:
    """One large event for each tenant, in one frame beyond the offset; the new offset."""
    segments = [segment([(at + n, LARGE)], uid=TOPICS[tenant]) for n, tenant in enumerate(tenants, 1)]
    kit.frame(at, at + len(tenants), segments=segments)
    return at + len(tenants)


def test_a_paused_tenant_loses_its_oldest_events_visibly_and_nobody_else_does(kit: Kit) -> None:
    ids = {"acme,s": "acme", "other,s": "other", "s": ""}
    for id, tenant in ids.items():
        store(kit, id, tenant)
    kit.frame(0, 1, activate(1, *((id, 1) for id in ids)))
    kit.frame(1, 2, control(2, "pause", ids=list(ids)))
    kit.registry.limits = UsageLimits(paused=16_000)
    at = 2
    for _ in range(3):
        at = publish(kit, at, "acme", "other", "")
    # Three events of about 5,200 bytes each are within the limit.
    assert [standing(kit, id).dropped for id in ids] == [0, 0, 0]
    at = publish(kit, at, "acme", "acme")  # e12 and e13
    lost = standing(kit, "acme,s")
    assert (lost.dropped, lost.reason, lost.last is not None) == (2, "paused_bytes", True)
    assert events_kept(kit, "acme,s") == ["e9", "e12", "e13"]
    assert [standing(kit, id).dropped for id in ("other,s", "s")] == [0, 0]
    assert events_kept(kit, "other,s") == ["e4", "e7", "e10"]
    with read(kit) as db:
        assert all(usage.used(db, usage.PAUSED, tenant) <= 16_000 for tenant in ids.values())
    check(kit)
    # A second subscription of the tenant: the larger buffer pays.
    store(kit, "acme,t", "acme")
    kit.frame(at, at + 2, activate(at + 1, ("acme,t", 1)), control(at + 2, "pause", ids=["acme,t"]))
    at = publish(kit, at + 2, "acme")
    assert standing(kit, "acme,t").dropped == 0
    assert standing(kit, "acme,s").dropped == 5  # e9, and the row of e12 and e13
    check(kit)
    kit.frame(at, at + 1, control(at + 1, "resume", ids=["other,s"]))
    assert events_at(kit, "other/") == ["e4", "e7", "e10"]
    check(kit)


def test_an_unread_stream_drops_its_oldest_events_and_its_reader_gets_a_gap(kit: Kit) -> None:
    address = addresses.stream_of("acme,s")
    kit.registry.limits = UsageLimits(stream=16_000)
    store(kit, "acme,s", "acme", url=address)
    kit.frame(0, 1, activate(1, ("acme,s", 1)))
    at = 1
    for _ in range(10):
        at = publish(kit, at, "acme")
    assert events_at(kit, address) == ["e9", "e10", "e11"]
    with read(kit) as db:
        assert outbox.gone(db, address).dropped == kit.rows()[0].id - 1 > 0
    assert standing(kit, "acme,s").dropped == 7
    assert standing(kit, "acme,s").reason == "stream_bytes"
    check(kit)


def test_dead_letters_drop_the_oldest_of_their_tenant_and_count_them(kit: Kit) -> None:
    body = b'{"notifications":[{"topic":"t","event":{"x":"%b"},"matches":[{"subscription":"s"}]}]}'
    with contextlib.closing(kit.folder.connect()) as db:
        for number in range(10):
            tenant = "acme" if number % 2 else "other"
            letter = letter_table.Letter(
                number + 1, f"{tenant}//http://x", 100 + number, 0, 1, 410, "gone", 1
            )
            letter_table.insert(db, letter, body % (b"x" * 1000), [f"{tenant},s"])
        assert letter_table.drop_excess(db, "acme", 3000) == 3
        left = [letter.id for letter in letter_table.page(db, None, (0, 0), 20)]
    assert left == [1, 3, 5, 7, 8, 9, 10]
    lost = standing(kit, "acme,s")
    assert (lost.dropped, lost.reason) == (3, "dead_letter_bytes")
    check(kit)


def test_letters_of_a_sink_that_refuses_everything_stay_within_the_limit(kit: Kit) -> None:
    kit.registry.limits = UsageLimits(dead=1000)

    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=12)
        receiver.answers["/a"] = [REFUSED] * 12
        async with asking(kit) as (notifier, evidence):
            await notifier.idle()
            letters, _ = await evidence.letters(None, None, 20)
        assert 0 < len(letters) < 12
        assert (notifier.counters.dead, notifier.counters.letters_dropped) == (12, 12 - len(letters))

    run(scenario)
    with read(kit) as db:
        assert 0 < usage.used(db, usage.DEAD, "") <= 1000
    check(kit)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["event", "pause", "resume", "end", "change"]), max_size=12), st.booleans())
def test_the_counters_are_what_a_scan_finds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], stream: bool
) -> None:
    kit = Kit(tmp_path_factory.mktemp("s") / "s1")
    try:
        kit.registry.limits = UsageLimits(paused=12_000, stream=12_000)
        url: dict[str, Any] = {"url": addresses.stream_of("acme,s")} if stream else {}
        store(kit, "acme,s", "acme", **url)
        kit.frame(0, 1, activate(1, ("acme,s", 1)))
        at, version = 1, 1
        for step in steps:
            if step == "change":
                version += 1
                store(kit, "acme,s", "acme", version=version, **url)
            controls = {
                "pause": [control(at + 1, "pause", ids=["acme,s"])],
                "resume": [control(at + 1, "resume", ids=["acme,s"])],
                "end": [control(at + 1, "deactivate", ids=["acme,s"])],
                "change": [control(at + 1, "change", versions=[("acme,s", version)])],
            }.get(step, [])
            events = segment([(at + 2, LARGE), (at + 3, LARGE)], uid=TOPICS["acme"])
            kit.frame(at, at + 3, *controls, segments=[events])
            at += 3
            check(kit)
    finally:
        kit.close()


def test_trimming_streams_reads_what_goes_and_not_all_that_waits(kit: Kit) -> None:
    address = addresses.stream_of("s")
    kit.store(item("s", url=address))
    kit.frame(0, 1, activate(1, ("s", 1)))
    kit.frame(1, 2, events=[(2, {"symbol": "GE", "price": 1.0})])
    trim = streams.Trim(0, 0, 1 << 40, lambda _: True)
    with contextlib.closing(kit.folder.connect()) as db:

        def work() -> int:
            """Instructions of SQLite's machine."""
            steps = 0

            def count() -> int:
                nonlocal steps
                steps += 1
                return 0

            db.set_progress_handler(count, 1)
            try:
                trim.work(db)
            finally:
                db.set_progress_handler(None, 1)
            return steps

        few = work()
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO outbox (address, subscription, frame_id, events, composition, created, bytes)"
            " SELECT address, subscription, frame_id, events, composition, created, bytes FROM outbox"
            " WHERE address = ? LIMIT 1",
            [(address,)] * 5000,
        )
        db.execute("COMMIT")
        assert work() <= few + 50
