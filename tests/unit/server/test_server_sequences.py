"""Sequences on a server: progress commits with the frame, across restarts and migrations."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edn import protocol
from edn.model.sequence import Sequence, Step, Watch, encode
from edn_server.handover import progress
from edn_server.handover.arrivals import FinishArrivals
from edn_server.handover.departures import ReportDepartures
from edn_server.sequences.settling import FedRows, FeedSettled
from edn_server.storage.writer import Call
from tests.oracle.sequences import Happened, completions
from tests.unit.server.serverkit import DATABASE, LOG, Kit, activate, control, item, segment, topic

QUOTES, FILES = 1, 2
FILE_COLUMNS = [("symbol", "string"), ("size", "number")]
FILES_TOPIC = topic(FILES, FILE_COLUMNS, "files")
A, B, C = ({"symbol": name} for name in "abc")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "postgres":
        monkeypatch.setenv(DATABASE, request.getfixturevalue("postgres").url)
    name: str = request.param
    return name


@pytest.fixture
def kit(tmp_path: Path, engine: str) -> Iterator[Kit]:
    made = Kit(tmp_path / "one")
    yield made
    made.close()


@pytest.fixture
def other(tmp_path: Path, engine: str) -> Iterator[Kit]:
    made = Kit(tmp_path / "two")
    yield made
    made.close()


def sequence(*steps: Step | dict[str, Any], **members: Any) -> dict[str, Any]:
    made = [one if isinstance(one, Step) else Step(QUOTES, one) for one in steps]
    return encode(Sequence(made, **members))


def stored(kit: Kit, filter: dict[str, Any], id: str = "s", **fields: Any) -> None:
    kit.store(item(id, filter, **fields), topics=[FILES_TOPIC])


def told(kit: Kit) -> list[tuple[str, list[str]]]:
    """(subscription, ids of the events) of all notifications of sequences that wait."""
    return [
        (match["subscription"], [event["id"] for event in entry["events"]])
        for row in kit.rows()
        for entry in kit.body(row)["notifications"]
        if "events" in entry
        for match in entry["matches"]
    ]


def test_a_sequence_is_one_notification_with_all_events(kit: Kit) -> None:
    stored(kit, sequence(A, B))
    kit.frame(0, 4, activate(1, ("s", 1)), events=[(2, A), (3, A), (4, B)])
    [row] = kit.rows()
    assert row.events == 1
    [entry] = kit.body(row)["notifications"]
    assert entry == {
        "topic": "quotes",
        "events": [
            {"topic": "quotes", "id": "e2", "time": "1970-01-01T00:00:02Z", "attributes": A},
            {"topic": "quotes", "id": "e4", "time": "1970-01-01T00:00:04Z", "attributes": B},
        ],
        "matches": [{"subscription": "s"}],
    }
    assert kit.count("half_matches") == 0


def test_a_sequence_spans_frames_topics_and_restarts(kit: Kit) -> None:
    stored(kit, sequence(A, Step(FILES, B), C))
    kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, A)])
    kit.reopen()
    kit.frame(2, 3, segments=[segment([(3, {"symbol": "b"})], uid=FILES, columns=FILE_COLUMNS)])
    kit.reopen()
    assert told(kit) == []
    applied = kit.frame(3, 4, events=[(4, C)])
    assert told(kit) == [("s", ["e2", "e3", "e4"])]
    assert applied.ack.matched == 1
    kit.reopen()
    kit.frame(4, 5, events=[(5, C)])
    assert len(told(kit)) == 1


def test_a_repeated_frame_feeds_nothing(kit: Kit) -> None:
    stored(kit, sequence(Step(QUOTES, A, times=2), B))
    kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, A)])
    kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, A)])
    kit.frame(2, 3, events=[(3, B)])
    assert told(kit) == []


def test_a_failed_transaction_leaves_the_half_matches(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(kit, sequence(A, B))
    kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, A)])
    with monkeypatch.context() as patch:
        patch.setattr("edn_server.storage.logs.advance", _fail)
        with pytest.raises(OSError, match="planted"):
            kit.frame(2, 3, events=[(3, B)])
    assert told(kit) == []
    kit.frame(2, 3, events=[(3, B)])
    assert told(kit) == [("s", ["e2", "e3"])]


def _fail(*given: Any) -> None:
    raise OSError("planted")


def test_the_notification_keeps_its_place_among_others(kit: Kit) -> None:
    kit.store(item("plain"))
    stored(kit, sequence(A, B))
    kit.frame(0, 5, activate(1, ("s", 1), ("plain", 1)), events=[(2, A), (3, B), (4, C), (5, A)])
    [row] = kit.rows()
    entries = kit.body(row)["notifications"]
    assert [
        entry["event"]["id"] if "event" in entry else "+".join(e["id"] for e in entry["events"])
        for entry in entries
    ] == [
        "e2",
        "e3",
        "e2+e3",
        "e4",
        "e5",
    ]
    assert row.events == 5


def test_keys_within_and_unless(kit: Kit) -> None:
    steps = (A, Step(QUOTES, B, unless=Watch(QUOTES, C)))
    stored(kit, sequence(*steps, by=["price"], within=5_000_000))
    events = [
        (2, {**A, "price": 1}),
        (3, {**A, "price": 2}),
        (4, {**B, "price": 1.0}),
        (5, {**C, "price": 2}),
        (6, {**B, "price": 2}),
        (7, {**A, "price": 3}),
        (8, A),
        (9, B),
        (13, {**B, "price": 3}),
        (14, {**A, "price": 4}),
        (19, {**B, "price": 4}),
    ]
    kit.frame(0, 19, activate(1, ("s", 1)), events=events)
    assert told(kit) == [("s", ["e2", "e4"]), ("s", ["e14", "e19"])]


def test_random_frames_give_what_the_oracle_gives(kit: Kit) -> None:
    drawn = random.Random(3)
    schemas = {
        "quotes": {"symbol": "string", "price": "number"},
        "files": {"symbol": "string", "size": "number"},
    }
    names = {"quotes": QUOTES, "files": FILES}
    written: dict[str, dict[str, Any]] = {}

    def part() -> dict[str, Any]:
        # More than five bytes are not exact, so predicates decide, too.
        return {
            "topic": drawn.choice(list(names)),
            "filter": {"symbol": drawn.choice(["a", "b", "long-name-c"])},
        }

    for number in range(30):
        steps = [part() for _ in range(drawn.randint(2, 4))]
        for step in steps[1:]:
            if drawn.random() < 0.3:
                step["unless"] = part()
            if drawn.random() < 0.3:
                step["times"] = drawn.randint(1, 3)
        within = drawn.choice([None, 4, 20])
        written[f"s{number}"] = {"sequence": steps, "within": within}
        made = Sequence(
            [
                Step(
                    names[step["topic"]],
                    step["filter"],
                    step.get("times", 1),
                    None
                    if "unless" not in step
                    else Watch(names[step["unless"]["topic"]], step["unless"]["filter"]),
                )
                for step in steps
            ],
            within=None if within is None else within * 1_000_000,
        )
        first = FILES_TOPIC if names[steps[0]["topic"]] == FILES else topic()
        kit.store(item(f"s{number}", encode(made)), info=first, topics=[topic(), FILES_TOPIC])
    kit.frame(0, 1, activate(1, *((name, 1) for name in written)))
    happened: list[Happened] = []
    offset = 1
    while offset < 400:
        count = drawn.randint(1, 30)
        parts: dict[str, list[tuple[int, dict[str, Any]]]] = {"quotes": [], "files": []}
        for at in range(offset + 1, offset + 1 + count):
            name, values = (
                drawn.choice(list(names)),
                {"symbol": drawn.choice(["a", "b", "long-name-c", "long-name-d"])},
            )
            parts[name].append((at, values))
            happened.append(Happened(name, values, at))
        segments = [
            segment(parts["quotes"]),
            segment(parts["files"], uid=FILES, columns=FILE_COLUMNS),
        ]
        kit.frame(offset, offset + count, segments=[one for one in segments if one.ids])
        offset += count
        if drawn.random() < 0.2:
            kit.reopen()
    wanted = {
        (name, "+".join(f"e{index + 2}" for index in found))
        for name, one in written.items()
        for found in completions(one, schemas, happened, one["within"])
    }
    found = [(name, "+".join(ids)) for name, ids in told(kit)]
    assert len(found) == len(set(found))
    assert set(found) == wanted
    assert len(wanted) > 100


def test_a_change_begins_without_a_half_match(kit: Kit) -> None:
    stored(kit, sequence(A, B))
    stored(kit, sequence(A, B, C), version=2)
    kit.frame(0, 3, activate(1, ("s", 1)), control(3, "change", versions=[("s", 2)]), events=[(2, A)])
    kit.frame(3, 6, events=[(4, B), (5, A), (6, B)])
    kit.frame(6, 7, events=[(7, C)])
    assert told(kit) == [("s", ["e5", "e6", "e7"])]
    assert kit.collect() == 1
    assert kit.count("half_matches") == 0


def test_a_paused_sequence_goes_on(kit: Kit) -> None:
    stored(kit, sequence(A, B))
    kit.frame(0, 4, activate(1, ("s", 1)), control(2, "pause", ids=["s"]), events=[(3, A), (4, B)])
    assert [(row.address, row.subscription) for row in kit.rows()] == [("", "s")]
    kit.frame(4, 5, control(5, "resume", ids=["s"]))
    assert told(kit) == [("s", ["e3", "e4"])]
    assert kit.rows()[0].address


def test_settling_puts_events_in_order(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(kit, sequence(A, B, settle=10_000_000))
    now = [8.0]
    monkeypatch.setattr("edn.runtime.clock.estimate", lambda: now[0])
    # The trace of the SIENA paper, in the order of matching.
    trace = [(B, 4), (A, 3), (A, 1), (B, 2), (A, 5), (B, 6), (A, 7), (B, 8)]
    events = [(offset, values) for offset, (values, _) in enumerate(trace, 2)]
    made = segment(events)
    stamps = protocol.int64_bytes([time * 1_000_000 for _, time in trace])
    kit.frame(0, 9, activate(1, ("s", 1)), segments=[protocol.msgspec.structs.replace(made, stamps=stamps)])
    assert _settle(kit) == 0
    assert kit.count("candidates") == 8
    kit.reopen()
    now[0] = 15.0
    assert _settle(kit) == 2
    now[0] = 30.0
    assert _settle(kit) == 2
    assert [ids for _, ids in told(kit)] == [["e4", "e5"], ["e3", "e2"], ["e6", "e7"], ["e8", "e9"]]
    assert kit.count("candidates") == 0
    late = segment([(10, A)], times={10: 30_000_000})
    kit.frame(9, 10, segments=[late])
    assert kit.registry.sequences[0].late == 1


def _settle(kit: Kit) -> int:
    kit._batch += 1
    return kit.writer.submit(FeedSettled(kit.registry, kit._batch, lambda fed: None)).result(30)


def test_the_oldest_half_match_goes_at_the_limit(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edn_server.sequences.feed.MAX_HALVES", 3)
    stored(kit, sequence(A, B, by=["price"]))
    kit.frame(
        0,
        4,
        activate(1, ("s", 1)),
        events=[(2, {**A, "price": 2}), (3, {**A, "price": 3}), (4, {**A, "price": 4})],
    )
    kit.frame(4, 9, events=[(at, {**A, "price": at}) for at in range(5, 10)])
    assert kit.registry.sequences[0].dropped == 5
    kit.reopen()
    assert kit.registry.sequences[0].dropped == 5
    kit.frame(9, 17, events=[(at, {**B, "price": at - 8}) for at in range(10, 18)])
    assert told(kit) == [("s", ["e7", "e15"]), ("s", ["e8", "e16"]), ("s", ["e9", "e17"])]


def _hand_over(old: Kit, new: Kit, id: str, version: int) -> None:
    """Does what the dispatcher does."""
    departures = protocol.Departures([(id, version)])
    departed, _ = old.writer.submit(ReportDepartures(old.registry, departures)).result(30)
    assert departed.monitored == [id]
    position = 0
    while True:
        question = protocol.ProgressQuery(id, version, position)
        read = functools.partial(progress.progress_page, question=question)
        page = old.writer.submit(Call(read)).result(30)
        for _ in range(2):  # a repeated page changes nothing
            new._batch += 1
            taken = new.writer.submit(
                progress.StoreProgress(new.registry, new._batch, page, lambda fed: None)
            ).result(30)
        position = taken.position
        if page.final:
            break
    forget = protocol.Departures([], forget=[id])
    old.writer.submit(ReportDepartures(old.registry, forget)).result(30)
    departed, _ = old.writer.submit(ReportDepartures(old.registry, departures)).result(30)
    assert departed.delivered == [id]
    assert departed.monitored == []


def _arrive(kit: Kit, id: str, version: int) -> list[FedRows]:
    fed: list[FedRows] = []

    def take_frame_id() -> int:
        kit._batch += 1
        return kit._batch

    job = FinishArrivals(
        kit.registry, protocol.Arrivals([(id, version)]), lambda *_: None, take_frame_id, fed.append
    )
    kit.writer.submit(job).result(30)
    return fed


@pytest.mark.parametrize("bytes_per_page", [1, 1 << 20])
def test_a_migration_hands_half_matches_over(
    kit: Kit, other: Kit, monkeypatch: pytest.MonkeyPatch, bytes_per_page: int
) -> None:
    monkeypatch.setattr("edn_server.handover.progress.PAGE_BYTES", bytes_per_page)
    wanted = sequence(A, B, C, by=["price"])
    stored(kit, wanted)
    events = [(2, {**A, "price": 1}), (3, {**B, "price": 1}), (4, {**A, "price": 2})]
    kit.frame(0, 4, activate(1, ("s", 1)), events=events)
    arriving = protocol.msgspec.structs.replace(item("s", wanted, version=2), arriving=True)
    other.store(arriving, topics=[FILES_TOPIC])
    kit.frame(4, 5, control(5, "move", versions=[("s", 2)]))
    kit.collect()
    other.frame(
        0, 8, control(6, "move", versions=[("s", 2)]), events=[(7, {**C, "price": 1}), (8, {**B, "price": 2})]
    )
    kit.reopen()
    other.reopen()
    assert told(other) == []
    _hand_over(kit, other, "s", 2)
    assert told(other) == [("s", ["e2", "e3", "e7"])]
    other.frame(8, 9, events=[(9, {**C, "price": 2})])
    assert [row.address for row in other.rows()] == ["", ""]
    assert _arrive(other, "s", 2) == []
    assert all(row.address for row in other.rows())
    assert told(other) == [("s", ["e2", "e3", "e7"]), ("s", ["e4", "e8", "e9"])]
    other.reopen()
    assert not other.registry.sequences[0].halves
    assert kit.collect() == 1
    assert kit.count("half_matches") == kit.count("steps") == 0


def test_half_matches_of_a_lost_server_are_lost(other: Kit) -> None:
    wanted = sequence(A, B)
    other.store(
        protocol.msgspec.structs.replace(item("s", wanted, version=2), arriving=True), topics=[FILES_TOPIC]
    )
    other.frame(0, 4, control(1, "move", versions=[("s", 2)]), events=[(2, B), (3, A), (4, B)])
    assert told(other) == []
    assert len(_arrive(other, "s", 2)) == 1
    assert told(other) == [("s", ["e3", "e4"])]
    other.frame(4, 6, events=[(5, A), (6, B)])
    assert told(other)[-1] == ("s", ["e5", "e6"])


def test_topics_without_sequences_have_no_roles(kit: Kit) -> None:
    kit.store(item("plain"))
    assert kit.registry.topics[QUOTES].role is None
    stored(kit, sequence(A, B))
    kit.frame(0, 2, activate(1, ("s", 1), ("plain", 1)), events=[(2, A)])
    assert kit.registry.topics[FILES].role is None
    kit.frame(2, 3, control(3, "deactivate", ids=["s"]))
    assert not kit.registry.sequences
    kit.frame(3, 4, events=[(4, B)])
    assert kit.told() == [("plain", "e2"), ("plain", "e4")]


def _unused_topics(kit: Kit) -> list[int]:
    return kit.writer.submit(Call(lambda _: kit.registry.unused_topics())).result(30)


def test_topics_of_a_sequence_stay_until_it_ends(kit: Kit) -> None:
    stored(kit, sequence(A, Step(FILES, B)))
    kit.frame(0, 1, activate(1, ("s", 1)))
    assert _unused_topics(kit) == []
    kit.reopen()
    assert _unused_topics(kit) == []
    kit.frame(1, 2, control(2, "deactivate", ids=["s"]))
    kit.collect()
    assert _unused_topics(kit) == [QUOTES, FILES]


def test_two_logs_feed_one_monitor(kit: Kit) -> None:
    stored(kit, sequence(A, B))
    kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, A)])
    kit.frame(0, 3, activate(1, ("s", 1)), segments=[segment([(3, B)])], log="log-b")
    assert told(kit) == [("s", ["e2", "e3"])]
    assert LOG != "log-b"
