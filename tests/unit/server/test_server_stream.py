"""Frames: what is matched where, what is dropped, and what survives a crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from serverkit import COLUMNS, LOG, Kit, activate, control, item, segment, topic

from edn import protocol
from edn.errors import Conflict, CorruptMessage, InvalidFilter, InvalidInput
from edn_server.ingest.apply_frame import ApplyFrame
from edn_server.outbox import cleanup, rows
from edn_server.outbox.cleanup import Settle
from edn_server.storage.addresses import url_of
from edn_server.storage.writer import Job
from edn_server.subscriptions.store import bind_filters

CHEAP = {"price": {"lt": 10}}
EVENT = {"symbol": "GE", "price": 5}


def test_a_version_matches_nothing_before_its_activation_and_everything_after_it_in_one_frame(
    kit: Kit,
) -> None:
    kit.store(item("s", CHEAP))
    applied = kit.frame(0, 5, activate(3, ("s", 1)), events=[(o, EVENT) for o in (1, 2, 4, 5)])
    assert kit.told() == [("s", "e4"), ("s", "e5")]
    assert applied.ack == protocol.FrameAck(epoch=1, cursor=5, shrinkable=0, matched=2, useful=2)


def test_a_version_that_no_log_activates_matches_nothing(kit: Kit) -> None:
    kit.store(item("s"))
    assert kit.frame(0, 2, events=[(1, EVENT), (2, EVENT)]).ack.matched == 0
    assert kit.count("events") == kit.count("outbox") == 0


def test_deactivate_ends_matching_at_its_offset_in_the_same_frame(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(
        0, 4, activate(1, ("s", 1)), control(3, "deactivate", ids=["s"]), events=[(2, EVENT), (4, EVENT)]
    )
    assert kit.told() == [("s", "e2")]


def test_a_change_hands_over_from_the_old_to_the_new_version_at_its_offset(kit: Kit) -> None:
    kit.store(item("s", {"price": {"lt": 10}}, recipient="old"))
    kit.frame(0, 1, activate(1, ("s", 1)))
    kit.store(item("s", {"price": {"lt": 100}}, version=2, recipient="new"))
    change = control(4, "change", versions=[("s", 2)])
    events = [
        (2, {"price": 50}),
        (3, {"price": 5}),
        (5, {"price": 50}),
        (6, {"price": 5}),
        (7, {"price": 500}),
    ]
    kit.frame(1, 7, change, events=events)
    [row] = kit.rows()
    told = [(n["event"]["id"], n["matches"]) for n in kit.body(row)["notifications"]]
    assert told == [
        ("e3", [{"subscription": "s", "recipient": "old"}]),
        ("e5", [{"subscription": "s", "recipient": "new"}]),
        ("e6", [{"subscription": "s", "recipient": "new"}]),
    ]


def test_an_expired_version_matches_no_longer_and_a_renewed_one_does(kit: Kit) -> None:
    kit.store(item("brief", expires=20), item("renewed", expires=20), item("lasting"))
    everything = activate(1, ("brief", 1), ("renewed", 1), ("lasting", 1))
    renew = control(3, "renew", expiries=[("renewed", 40)])
    times = {2: 19, 4: 20, 5: 39, 6: 40}
    kit.frame(0, 6, everything, renew, events=[(o, EVENT) for o in times], times=times)
    told: dict[str, list[str]] = {}
    for subscription, event in kit.told():
        told.setdefault(subscription, []).append(event)
    assert told == {"brief": ["e2"], "renewed": ["e2", "e4", "e5"], "lasting": ["e2", "e4", "e5", "e6"]}


def test_a_renewal_survives_a_restart_and_can_be_for_ever(kit: Kit) -> None:
    kit.store(item("s", expires=20))
    kit.frame(0, 2, activate(1, ("s", 1)), control(2, "renew", expiries=[("s", None)]))
    kit.reopen()
    kit.frame(2, 3, events=[(3, EVENT)], times={3: 10**15})
    assert kit.told() == [("s", "e3")]


def test_a_renewal_concerns_the_active_version_and_not_the_one_that_waits_for_its_change(kit: Kit) -> None:
    kit.store(item("s", expires=100))
    kit.frame(0, 1, activate(1, ("s", 1)))
    kit.store(item("s", version=2, expires=10))
    kit.frame(1, 2, control(2, "renew", expiries=[("s", 200)]))
    kit.frame(2, 4, control(3, "change", versions=[("s", 2)]), events=[(4, EVENT)], times={4: 50})
    assert kit.told() == []


def test_repeats_are_dropped_and_the_rest_of_an_overlapping_frame_is_applied(kit: Kit) -> None:
    kit.store(item("s"))
    first = kit.frame(0, 3, activate(1, ("s", 1)), events=[(2, EVENT), (3, EVENT)])
    again = kit.frame(0, 3, activate(1, ("s", 1)), events=[(2, EVENT), (3, EVENT)])
    assert (again.ack.cursor, again.ack.matched, again.gap) == (first.ack.cursor, 0, False)
    kit.frame(1, 4, events=[(2, EVENT), (3, EVENT), (4, EVENT)])
    assert kit.told() == [("s", "e2"), ("s", "e3"), ("s", "e4")]


def test_a_repeated_control_changes_nothing_a_second_time(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(0, 2, activate(1, ("s", 1)), control(2, "deactivate", ids=["s"]))
    kit.frame(0, 3, activate(1, ("s", 1)), control(2, "deactivate", ids=["s"]), events=[(3, EVENT)])
    assert kit.told() == []


def test_a_repeated_end_does_not_end_the_subscription_that_was_made_anew_after_it(kit: Kit) -> None:
    kit.store(item("s"))
    end = control(2, "deactivate", ids=["s"])
    kit.frame(0, 2, activate(1, ("s", 1)), end)
    kit.store(item("s", version=2))
    kit.frame(2, 3, activate(3, ("s", 2)))
    kit.frame(1, 4, end, activate(3, ("s", 2)), events=[(4, EVENT)])
    assert kit.told() == [("s", "e4")]


def test_a_frame_beyond_the_cursor_is_answered_with_the_cursor_and_changes_nothing(kit: Kit) -> None:
    kit.frame(0, 3)
    applied = kit.frame(4, 6)
    assert applied.gap
    assert applied.ack.cursor == 3
    kit.reopen()
    assert kit.registry.logs[LOG].cursor == 3


def test_a_log_never_seen_begins_at_its_join_record(kit: Kit) -> None:
    applied = kit.frame(41, 44, control(42, "join", incarnation=1))
    assert (applied.gap, applied.ack.cursor) == (False, 44)
    assert kit.registry.logs[LOG].joined == 42


@pytest.mark.parametrize("controls", [(), (control(43, "join", incarnation=1),)])
def test_a_log_never_seen_that_begins_elsewhere_is_asked_for_from_its_beginning(
    kit: Kit, controls: tuple[protocol.Control, ...]
) -> None:
    applied = kit.frame(41, 44, *controls)
    assert (applied.gap, applied.ack.cursor) == (True, 0)
    assert LOG not in kit.registry.logs


def test_a_join_drops_what_an_earlier_incarnation_stored_and_never_activated(kit: Kit) -> None:
    kit.store(item("kept"), item("left"), incarnation=1)
    kit.frame(0, 1, activate(1, ("kept", 1)))
    kit.store(item("coming"), incarnation=2)
    kit.frame(1, 2, control(2, "join", incarnation=2), incarnation=2)
    assert sorted(kit.registry.numbers) == ["coming", "kept"]
    kit.frame(2, 4, activate(3, ("coming", 1)), events=[(4, EVENT)], incarnation=2)
    assert sorted(kit.told()) == [("coming", "e4"), ("kept", "e4")]


def test_a_version_stored_anew_by_the_next_incarnation_is_not_dropped_by_its_join(kit: Kit) -> None:
    kit.store(item("s", expires=3), incarnation=1)
    kit.frame(0, 1)
    kit.store(item("s", expires=30), incarnation=2)
    kit.frame(1, 2, control(2, "join", incarnation=2), incarnation=2)
    kit.frame(2, 4, activate(3, ("s", 1)), events=[(4, EVENT)], incarnation=2)
    assert kit.told() == [("s", "e4")]


def test_a_join_of_another_log_activates_there_what_is_active_here(kit: Kit) -> None:
    kit.store(item("active"), item("ended"), item("inactive"))
    kit.frame(0, 3, activate(1, ("active", 1), ("ended", 1)), control(3, "deactivate", ids=["ended"]))
    kit.frame(0, 3, control(2, "join", incarnation=1), events=[(1, EVENT), (3, EVENT)], log="log-b")
    assert kit.told() == [("active", "e3")]


def test_offsets_of_two_logs_have_nothing_to_do_with_each_other(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(0, 100, activate(90, ("s", 1)), events=[(100, EVENT)])
    kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, EVENT)], log="log-b")
    kit.frame(2, 3, control(3, "deactivate", ids=["s"]), log="log-b")
    kit.frame(3, 4, events=[(4, EVENT)], log="log-b")
    kit.frame(100, 101, events=[(101, EVENT)])
    assert kit.told() == [("s", "e100"), ("s", "e2"), ("s", "e101")]
    assert kit.registry.topics[1].rectangles == 1
    kit.frame(101, 102, control(102, "deactivate", ids=["s"]))
    assert kit.registry.topics[1].rectangles == 0


def test_a_subscription_made_anew_before_its_old_end_is_read_loses_nothing(kit: Kit) -> None:
    kit.store(item("s", recipient="old"))
    kit.frame(0, 1, activate(1, ("s", 1)))
    kit.store(item("s", version=7, recipient="new"))
    kit.frame(1, 2, control(2, "deactivate", ids=["s"]))
    kit.frame(2, 4, activate(3, ("s", 7)), events=[(4, EVENT)])
    assert kit.told() == [("s", "e4")]


def test_a_deactivate_can_name_versions(kit: Kit) -> None:
    kit.store(item("s"))
    kit.store(item("s", version=2, filter=CHEAP))
    kit.frame(0, 1, control(1, "deactivate", versions=[("s", 1)]))
    assert [v.version for v in kit.registry.versions.values()] == [2]


def test_only_the_exact_predicate_decides_where_a_rectangle_is_a_cover(kit: Kit) -> None:
    kit.store(
        item("suffix", {"symbol": {"suffix": "E"}}), item("either", {"$any": [CHEAP, {"symbol": "GE"}]})
    )
    kit.frame(0, 1, activate(1, ("suffix", 1), ("either", 1)))
    events: list[tuple[int, dict[str, Any]]] = [
        (2, {"symbol": "GE", "price": 5}),
        (3, {"symbol": "AA", "price": 5}),
        (4, {"symbol": "AA", "price": 50}),
        (5, {"price": 50}),
    ]
    kit.frame(1, 5, events=events)
    assert sorted(kit.told()) == [("either", "e2"), ("either", "e3"), ("suffix", "e2")]


def test_an_address_hears_of_all_topics_in_the_order_of_the_log(kit: Kit) -> None:
    other = [("level", "integer")]
    kit.store(item("quotes"))
    kit.store(item("levels"), info=topic(2, other, "levels"))
    segments = [
        segment([(3, EVENT), (6, EVENT)]),
        segment([(2, {"level": 1}), (5, {"level": 2})], uid=2, columns=other),
    ]
    kit.frame(0, 6, activate(1, ("quotes", 1), ("levels", 1)), segments=segments)
    [row] = kit.rows()
    entries = kit.body(row)["notifications"]
    assert [(entry["topic"], entry["event"]["id"]) for entry in entries] == [
        ("levels", "e2"),
        ("quotes", "e3"),
        ("levels", "e5"),
        ("quotes", "e6"),
    ]
    assert entries[1]["event"] == {"id": "e3", "time": "1970-01-01T00:00:03Z", "attributes": EVENT}


def test_a_subscriber_without_a_recipient_is_told_none(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, EVENT)])
    [row] = kit.rows()
    assert kit.body(row)["notifications"][0]["matches"] == [{"subscription": "s"}]


def test_events_of_a_topic_that_nobody_here_subscribes_to_are_ignored(kit: Kit) -> None:
    kit.store(item("s"))
    applied = kit.frame(0, 2, activate(1, ("s", 1)), segments=[segment([(2, EVENT)], uid=99)])
    assert (applied.ack.cursor, applied.ack.matched) == (2, 0)


def test_columns_may_come_later_and_older_points_lack_them(kit: Kit) -> None:
    wider = [*COLUMNS, ("venue", "string")]
    kit.store(item("old", CHEAP))
    kit.frame(0, 1, activate(1, ("old", 1)))
    # A wider point than any filter here knows of.
    kit.frame(1, 2, segments=[segment([(2, {**EVENT, "venue": "NY"})], columns=wider)])
    kit.store(item("new", {"venue": "NY"}), info=topic(columns=wider))
    old_point = segment([(4, EVENT)])
    kit.frame(2, 4, activate(3, ("new", 1)), segments=[old_point])
    kit.frame(4, 5, segments=[segment([(5, {**EVENT, "venue": "NY"})], columns=wider)])
    kit.reopen()
    kit.frame(5, 6, segments=[segment([(6, {"price": 99, "venue": "NY"})], columns=wider)])
    assert sorted(kit.told()) == [("new", "e5"), ("new", "e6"), ("old", "e2"), ("old", "e4"), ("old", "e5")]


def test_rows_are_split_by_events_and_by_bytes(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.store(item("s"))
    kit.frame(0, 1, activate(1, ("s", 1)))
    monkeypatch.setattr(rows, "ROW_EVENTS", 4)
    kit.frame(1, 11, events=[(o, EVENT) for o in range(2, 12)])
    assert [len(row.places) for row in kit.rows()] == [4, 4, 2]
    monkeypatch.setattr(rows, "ROW_BYTES", 500)
    big = {"symbol": "x" * 600, "price": 1}
    kit.frame(11, 14, events=[(12, big), (13, EVENT), (14, EVENT)])
    assert [len(row.places) for row in kit.rows()][3:] == [1, 2]
    assert [event for _, event in kit.told()] == [f"e{o}" for o in range(2, 15)]


def test_what_is_committed_survives_a_crash_before_the_answer(kit: Kit) -> None:
    kit.store(item("s", CHEAP, recipient="r"))
    kit.frame(0, 3, activate(1, ("s", 1)), events=[(2, EVENT), (3, EVENT)])
    before = [(row.id, kit.body(row)) for row in kit.rows()]
    kit.reopen()
    assert [(row.id, kit.body(row)) for row in kit.rows()] == before
    assert (kit.epoch, kit.registry.logs[LOG].cursor) == (2, 3)
    # The dispatcher had no answer and sends it again, with what came meanwhile.
    kit.frame(0, 4, activate(1, ("s", 1)), events=[(2, EVENT), (3, EVENT), (4, EVENT)])
    assert kit.told() == [("s", "e2"), ("s", "e3"), ("s", "e4")]


def test_a_row_id_is_never_used_again_even_when_the_outbox_was_empty_at_a_restart(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, EVENT)])
    [first] = kit.rows()
    kit.writer.submit(Settle([(first.id, first.frame_id)])).result(30)
    assert kit.count("events") == 0
    kit.reopen()
    kit.frame(2, 3, events=[(3, EVENT)])
    [second] = kit.rows()
    assert second.id > first.id


def test_a_transaction_that_fails_changes_nothing_in_memory(kit: Kit) -> None:
    kit.store(item("s", expires=50), item("t"))
    kit.frame(0, 1, activate(1, ("s", 1)))
    kit.writer.submit(
        _Execute("CREATE TRIGGER full BEFORE INSERT ON outbox BEGIN SELECT raise(FAIL, 'no'); END")
    )
    controls = [
        activate(2, ("t", 1)),
        control(3, "renew", expiries=[("s", None)]),
        control(5, "deactivate", ids=["s"]),
    ]
    with pytest.raises(Exception, match="no"):
        kit.frame(1, 6, *controls, events=[(4, EVENT), (6, EVENT)])
    log = kit.registry.logs[LOG]
    state = {
        name: (log.since[numbers].tolist(), log.until[numbers].tolist()) for name, numbers in _by_name(kit)
    }
    expires = {name: log.expires[numbers].tolist() for name, numbers in _by_name(kit)}
    never = np.iinfo(np.int64).max
    assert state == {"s": ([1], [never]), "t": ([never], [never])}
    assert expires == {"s": [50], "t": [never]}
    assert log.cursor == 1
    kit.writer.submit(_Execute("DROP TRIGGER full"))
    kit.frame(1, 6, *controls, events=[(4, EVENT), (6, EVENT)])
    assert sorted(kit.told()) == [("s", "e4"), ("t", "e4"), ("t", "e6")]


@pytest.mark.parametrize(
    "broken",
    [
        {"controls": [activate(9, ("s", 1))]},
        {"segments": [segment([(9, EVENT)])]},
        {"segments": [segment([(2, EVENT), (1, EVENT)])]},
        {"segments": [protocol.msgspec.structs.replace(segment([(1, EVENT), (2, EVENT)]), ids=["e1"])]},
        {"segments": [protocol.msgspec.structs.replace(segment([(1, EVENT)]), lines=b"")]},
        {"segments": [protocol.msgspec.structs.replace(segment([(1, EVENT)]), lines=b"{}\n{}\n")]},
        {"segments": [protocol.msgspec.structs.replace(segment([(1, EVENT)]), points=b"")]},
        {"upto": -1},
    ],
)
def test_a_frame_that_contradicts_itself_is_refused_whole(kit: Kit, broken: dict[str, Any]) -> None:
    kit.store(item("s"))
    fields = {"after": 0, "upto": 3, "controls": [], "segments": [], **broken}
    frame = protocol.Frame(log=LOG, incarnation=1, **fields)
    job = ApplyFrame(kit.registry, 1, 1, frame, lambda *_: None)
    with pytest.raises(CorruptMessage):
        kit.writer.submit(job).result(30)
    assert kit.frame(0, 1).ack.cursor == 1


def test_an_ended_version_leaves_matcher_and_summary_at_once_and_its_row_with_its_last_notification(
    kit: Kit,
) -> None:
    kit.store(item("s", {"$any": [{"price": 1}, {"price": 5}]}), item("other", CHEAP, url=SINK_B))
    kit.frame(0, 2, activate(1, ("s", 1), ("other", 1)), events=[(2, EVENT)])
    applied = kit.frame(2, 3, control(3, "deactivate", ids=["s"]))
    assert applied.ack.shrinkable == 2
    assert kit.registry.topics[1].rectangles == 1
    assert kit.collect() == 0
    kit.reopen()
    assert ("s", "e2") in kit.told()
    [row] = [row for row in kit.rows() if url_of(row.address) != SINK_B]
    kit.writer.submit(Settle([(row.id, row.frame_id)])).result(30)
    assert kit.collect() == 1
    assert (kit.count("versions"), kit.count("intervals")) == (1, 1)
    # The other address still waits for the same event.
    assert kit.told() == [("other", "e2")]
    # Its number is free, and a new version that takes it begins blank.
    kit.store(item("next", CHEAP))
    assert kit.frame(3, 4, events=[(4, EVENT)]).ack.matched == 1
    assert kit.frame(4, 6, activate(5, ("next", 1)), events=[(6, EVENT)]).ack.matched == 2


def test_a_number_that_is_used_again_begins_blank(kit: Kit) -> None:
    kit.store(item("first"))
    kit.frame(0, 2, activate(1, ("first", 1)), control(2, "deactivate", ids=["first"]))
    assert kit.collect() == 1
    kit.store(item("second"))
    assert list(kit.registry.versions) == [0]
    kit.frame(2, 5, activate(4, ("second", 1)), events=[(3, EVENT), (5, EVENT)])
    assert kit.told() == [("second", "e5")]


SINK_B = "http://127.0.0.1:9/b"


def test_payloads_that_no_waiting_row_names_are_trimmed(kit: Kit) -> None:
    kit.store(item("all"), item("cheap", CHEAP, url=SINK_B))
    events = [(o, {"price": o}) for o in range(2, 22)]
    kit.frame(0, 21, activate(1, ("all", 1), ("cheap", 1)), events=events)
    row = next(row for row in kit.rows() if url_of(row.address) != SINK_B)
    kit.writer.submit(Settle([(row.id, row.frame_id)])).result(30)
    assert kit.count("events") == 1
    assert kit.writer.submit(cleanup.Trim(row.frame_id)).result(30) == 12
    assert kit.told() == [("cheap", f"e{o}") for o in range(2, 10)]


# -- storing --------------------------------------------------------------------------------------------


def test_the_same_store_again_is_answered_again_and_stores_nothing(kit: Kit) -> None:
    first = kit.store(item("s", CHEAP))
    assert kit.store(item("s", CHEAP)) == first
    assert kit.count("versions") == 1
    assert kit.store(item("t", CHEAP)).seq > first.seq


def test_the_same_version_with_another_filter_is_refused(kit: Kit) -> None:
    kit.store(item("s", CHEAP))
    with pytest.raises(Conflict, match="a change needs a new version"):
        kit.store(item("t"), item("s", {"price": 1}))
    assert kit.count("versions") == 1


def test_a_leftover_of_an_earlier_incarnation_gives_way_to_other_content(kit: Kit) -> None:
    kit.store(item("s", {"price": 1}), incarnation=1)
    kit.store(item("s", CHEAP), incarnation=2)
    kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, EVENT)], incarnation=2)
    assert kit.told() == [("s", "e2")]
    assert kit.collect() == 1


def test_a_store_of_an_earlier_incarnation_is_refused(kit: Kit) -> None:
    kit.store(item("s"), incarnation=2)
    with pytest.raises(Conflict, match="at least 2, got 1"):
        kit.store(item("t"), incarnation=1)
    kit.frame(0, 1, control(1, "join", incarnation=3), incarnation=3)
    kit.reopen()
    with pytest.raises(Conflict):
        kit.store(item("t"), incarnation=2)


def test_a_filter_that_does_not_bind_stores_nothing_and_names_its_place(kit: Kit) -> None:
    with pytest.raises(InvalidFilter) as caught:
        kit.store(item("s"), item("t", {"nowhere": 1}))
    assert caught.value.pointer is not None
    assert caught.value.pointer.startswith("/items/1/filter")
    assert kit.count("versions") == 0


def test_an_unknown_engine_is_refused_before_anything_is_stored() -> None:
    info = protocol.TopicInfo(1, "", "quotes", COLUMNS, "no-such-engine")
    with pytest.raises(InvalidInput, match="no-such-engine"):
        bind_filters(protocol.Store(LOG, 1, info, [item("s")]))


def test_columns_that_contradict_those_known_are_refused(kit: Kit) -> None:
    kit.store(item("s"))
    with pytest.raises(Conflict, match="can only be appended"):
        kit.store(item("t"), info=topic(columns=[("price", "number"), ("symbol", "string")]))


def test_seq_and_what_is_stored_survive_a_restart(kit: Kit) -> None:
    stored = kit.store(item("s", {"$any": [{"price": {"lt": 1}}, {"price": {"gt": 9}}]}))
    kit.reopen()
    assert kit.registry.seq == stored.seq
    assert kit.registry.topics[1].rectangles == 2
    kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, {"price": 10})])
    assert kit.told() == [("s", "e2")]


class _Execute(Job[None]):
    fresh = True

    def __init__(self, statement: str) -> None:
        self._statement = statement

    def work(self, db: Any) -> None:
        db.execute(self._statement)


def _by_name(kit: Kit) -> list[tuple[str, list[int]]]:
    return sorted(kit.registry.numbers.items())
