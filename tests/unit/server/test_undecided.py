"""Predicates that take long are asked later: what is told stays the same, and others do not wait."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serverkit import Kit, activate, control, item, segment, topic

from edn.model.filter import BoundFilter, Filter
from edn.model.schema import Schema
from edn_server.ingest import undecided as doubts
from edn_server.ingest.undecided import Budget, Decider
from edn_server.outbox import cleanup
from edn_server.storage import outbox
from edn_server.storage.writer import Call
from tests.oracle import meaning
from tests.oracle.values import read_event

EVENTS: list[tuple[int, dict[str, Any]]] = [
    (10, {"symbol": "GE and others", "price": 5}),
    (11, {"symbol": "nothing", "price": 5}),
    (12, {"price": 5}),
    (13, {"symbol": "others GE", "price": 50}),
]
FILTERS: dict[str, Any] = {
    "some": {"symbol": {"contains": "GE"}},
    "none": {"symbol": {"contains": "XX"}},
    "not": {"symbol": {"not": {"contains": "GE"}}},
    "ends": {"symbol": {"suffix": "GE"}},
    "both": {"$all": [{"symbol": {"contains": "others"}}, {"price": {"lt": 10}}]},
    "plain": {"price": {"lt": 10}},
}
TOLD = {
    "some": ["e10", "e13"],
    "none": [],
    "not": ["e11"],
    "ends": ["e13"],
    "both": ["e10"],
    "plain": ["e10", "e11", "e12"],
}


@pytest.fixture
def broke(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is never time to ask."""
    monkeypatch.setattr(doubts, "EACH", 0.0)


def told(kit: Kit, id: str) -> list[str]:
    return [event for subscription, event in kit.told() if subscription == id]


def subscribe_all(kit: Kit, **more: Any) -> None:
    kit.store(*(item(id, filter, **more) for id, filter in FILTERS.items()))
    kit.frame(0, 1, activate(1, *((id, 1) for id in FILTERS)))


@pytest.mark.usefixtures("broke")
def test_what_is_decided_later_is_what_would_have_been_decided_at_once(kit: Kit) -> None:
    subscribe_all(kit)
    applied = kit.frame(1, 13, events=EVENTS)
    assert applied.doubtful
    assert applied.ack.matched == 0, "all are at one address, and counted when they are decided"
    [address] = {row.address for row in kit.rows()}
    assert outbox.page(kit.db, address, 100).rows == []
    assert kit.decide() == 1
    assert {id: told(kit, id) for id in FILTERS} == TOLD
    assert len(outbox.page(kit.db, address, 100).rows) == 1
    for id, events in TOLD.items():
        [number] = kit.registry.numbers[id]
        assert kit.registry.counters.totals([number], 1).matched == len(events)
    assert kit.decide() == 0


def test_a_frame_within_its_budget_leaves_no_doubt(kit: Kit) -> None:
    subscribe_all(kit)
    assert not kit.frame(1, 13, events=EVENTS).doubtful
    assert {id: told(kit, id) for id in FILTERS} == TOLD


@pytest.mark.usefixtures("broke")
def test_a_row_that_matches_nothing_goes_with_its_payload(kit: Kit) -> None:
    kit.store(item("none", FILTERS["none"]))
    kit.frame(0, 1, activate(1, ("none", 1)))
    kit.frame(1, 13, events=EVENTS)
    assert kit.count("outbox") == 1
    kit.decide()
    assert kit.count("outbox") == kit.count("events") == 0


@pytest.mark.usefixtures("broke")
def test_rows_behind_one_in_doubt_wait_and_keep_their_order(kit: Kit) -> None:
    kit.store(item("some", FILTERS["some"], url="http://h/one"), item("plain", url="http://h/one"))
    kit.store(item("other", url="http://h/two"))
    kit.frame(0, 1, activate(1, ("some", 1), ("other", 1)))
    kit.frame(1, 10, events=EVENTS[:1])
    kit.frame(10, 11, activate(11, ("plain", 1)))
    kit.frame(11, 13, events=[(12, {"price": 1})])
    one, two = "//http://h/one", "//http://h/two"
    assert outbox.page(kit.db, one, 10).rows == []
    assert len(outbox.page(kit.db, two, 10).rows) == 2
    kit.decide()
    assert [row.id for row in outbox.page(kit.db, one, 10).rows] == sorted(
        row.id for row in kit.rows() if row.address == one
    )
    assert told(kit, "some") == ["e10"]
    assert told(kit, "plain") == ["e12"]


@pytest.mark.usefixtures("broke")
def test_doubts_survive_a_restart_and_the_end_of_the_version(kit: Kit) -> None:
    kit.store(item("some", FILTERS["some"]))
    kit.frame(0, 1, activate(1, ("some", 1)))
    kit.frame(1, 14, control(14, "deactivate", ids=["some"]), events=EVENTS)
    kit.collect()
    kit.writer.submit(cleanup.ForgetTopics(kit.registry)).result(30)
    kit.reopen()
    assert kit.decide() == 1
    assert told(kit, "some") == ["e10", "e13"]


@pytest.mark.usefixtures("broke")
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_kept_in_doubt_is_decided_by_the_filter_it_was_found_for(kit: Kit, when: str) -> None:
    """Resuming lets go in the name of the newest version; the version that was paused is asked."""
    kit.store(item("s", FILTERS["some"]))
    kit.frame(0, 2, activate(1, ("s", 1)), control(2, "pause", ids=["s"]))
    kit.frame(2, 13, events=EVENTS)
    kit.store(item("s", FILTERS["ends"], version=2, url="http://h/new"))
    kit.frame(13, 14, control(14, "change", versions=[("s", 2)]))
    if when == "before":
        kit.decide()
    kit.frame(14, 15, control(15, "resume", ids=["s"]))
    kit.collect()
    kit.decide()
    assert [row.address for row in kit.rows()] == ["//http://h/new"]
    assert told(kit, "s") == ["e10", "e13"]
    kit.reopen()
    assert kit.decide() == 0


@pytest.mark.usefixtures("broke")
def test_a_replay_is_decided_later_too(kit: Kit) -> None:
    kit.store(item("s", FILTERS["some"]))
    kit.frame(0, 20, control(20, "activate", versions=[("s", 1)], replays=[("s", 1)]))
    assert kit.replay("s", 0, 19, EVENTS, final=True).done
    assert kit.decide() == 1
    assert told(kit, "s") == ["e10", "e13"]


def test_one_tenant_s_budget_is_not_another_s() -> None:
    budget = Budget(each=1.0, all=3.0)
    budget.spend("acme", 0.75)
    assert budget.left("acme") == 0.25
    assert budget.left("other") == 1.0
    budget.spend("third", 2.0)
    assert budget.left("other") == 0.25


def test_an_expensive_filter_is_not_asked_in_the_writer_s_thread(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {"$any": [{"symbol": {"contains": f"pattern {n}"}} for n in range(900)]}
    kit.store(item("s", many))
    kit.frame(0, 1, activate(1, ("s", 1)))
    kit.writer.submit(Call(lambda _: kit.registry.bound(0))).result(30)
    assert not kit.frame(1, 2, events=[(2, {"symbol": "short"})]).doubtful
    never = property(lambda _: pytest.fail("asked in the writer's thread"))
    monkeypatch.setattr(BoundFilter, "matches", never, raising=False)
    assert kit.frame(2, 3, events=[(3, {"symbol": "pattern 77 " + "x" * 500_000})]).doubtful
    monkeypatch.undo()
    kit.decide()
    assert kit.told() == [("s", "e3")]


def test_tenants_take_turns(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant with many rows in doubt does not keep another's single one waiting."""
    monkeypatch.setattr(doubts, "EACH", 0.0)
    kit.store(*(item(f"a{n}", FILTERS["some"], url=f"http://h/{n}") for n in range(20)))
    kit.store(item("other,b", FILTERS["some"], tenant="other"), info=topic(2, tenant="other"))
    kit.frame(0, 1, activate(1, *((f"a{n}", 1) for n in range(20)), ("other,b", 1)))
    kit.frame(1, 11, events=EVENTS[:1], segments=[segment([(11, EVENTS[0][1])], uid=2)])
    decided: list[str] = []

    async def work() -> None:
        decider = Decider(
            kit.reader(),
            kit.registry,
            lambda job: asyncio.wrap_future(kit.writer.submit(job)),
            lambda address, _: decided.append(address),
        )
        try:
            assert await decider._round()
            assert not await decider._round()
        finally:
            decider.close()

    asyncio.run(work())
    assert len(decided) == 21
    assert any(address.startswith("other/") for address in decided[:2])


WORDS = st.sampled_from(["", "a", "ab", "b", "aba", "é", "e\u0301", "😀", "a😀", "ba"])
TEXT = st.lists(WORDS, max_size=5).map("".join)


def filters() -> st.SearchStrategy[Any]:
    test = st.one_of(
        st.builds(
            lambda operator, word: {"symbol": {operator: word}},
            st.sampled_from(["contains", "suffix", "prefix", "eq", "ne"]),
            WORDS,
        ),
        st.builds(
            lambda operator, word: {"symbol": {"not": {operator: word}}},
            st.sampled_from(["contains", "suffix", "prefix", "eq"]),
            WORDS,
        ),
        st.builds(lambda bound: {"price": {"gt": bound}}, st.integers(0, 3)),
    )
    return st.recursive(
        test,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: {"$all": parts}),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: {"$any": parts}),
            inner.map(lambda part: {"$not": part}),
        ),
        max_leaves=6,
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    given=st.lists(filters(), min_size=1, max_size=5),
    events=st.lists(
        st.fixed_dictionaries({}, optional={"symbol": TEXT, "price": st.integers(0, 3)}), max_size=4
    ),
)
def test_decisions_are_those_of_the_definition(
    given: list[Any], events: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the independent oracle, with every text searched for all patterns at once."""
    monkeypatch.setattr(doubts, "LEAST_TEXT", 0)
    monkeypatch.setattr(doubts, "LEAST_PATTERNS", 1)
    types = {"symbol": "string", "price": "number"}
    schema = Schema.parse(types)
    bound = [Filter.parse(filter).bind(schema) for filter in given]

    cache = doubts.FilterCache()
    for place, event in enumerate(events):
        values = cache.search(cache.values(1, place, json.dumps(event).encode(), schema), bound)
        for filter, one in zip(given, bound, strict=True):
            expected = meaning.matches(filter, read_event(event, types), types)
            assert one.matches(values) == expected


def kit_less_reader() -> sqlite3.Connection:
    return sqlite3.connect(":memory:")


def test_prepared_patterns_are_kept_up_to_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubts, "PREPARED", 10_000)
    cache = doubts.FilterCache()
    schema = Schema.parse({"symbol": "string"})
    for batch in range(20):
        words = {"$any": [{"symbol": {"contains": f"{batch} {n}"}} for n in range(30)]}
        bound = [Filter.parse(words).bind(schema)]
        assert cache.searches(bound) is cache.searches(bound)
    assert 0 < cache._prepared_bytes <= 10_000
    assert cache._prepared_bytes == sum(map(doubts._size, cache._prepared.values()))
