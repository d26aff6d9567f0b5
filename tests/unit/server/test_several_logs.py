"""A server that follows several logs: each counts for itself, and nobody is told anything twice."""

from __future__ import annotations

import pytest
from serverkit import LOG, Kit, activate, control, item

from edn_server.ingest import dedup as repeats
from edn_server.ingest.control_records import FollowLog, RetireLogs
from edn_server.storage import delivered_ids
from edn_server.storage.writer import Call

OTHER = "log-b"
EVENT = {"symbol": "GE", "price": 1}
HERE, THERE = "http://here", "http://there"


@pytest.fixture
def kit(kit: Kit) -> Kit:
    """Joined both logs, each at its offset 1."""
    kit.registry.multi_dispatcher = True
    for url, log in ((HERE, LOG), (THERE, OTHER)):
        kit.writer.submit(FollowLog(kit.registry, url, log, 1)).result(30)
        kit.frame(0, 1, control(1, "join", incarnation=1), log=log)
    return kit


def reopen(kit: Kit) -> None:
    kit.reopen()
    kit.registry.multi_dispatcher = True


def sent(kit: Kit) -> list[tuple[str, str]]:
    """(subscription, event id) of what goes out, in order."""
    return [
        (match["subscription"], entry["event"]["id"])
        for row in kit.rows()
        if row.address
        for entry in kit.body(row)["notifications"]
        for match in entry["matches"]
    ]


def test_a_version_matches_in_each_log_where_that_log_says_so(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(1, 3, activate(2, ("s", 1)), events=[(3, EVENT)])
    kit.frame(1, 4, activate(3, ("s", 1)), events=[(2, EVENT), (4, EVENT)], log=OTHER)
    kit.frame(3, 5, control(4, "deactivate", ids=["s"]), events=[(5, EVENT)])
    reopen(kit)
    kit.frame(4, 7, control(6, "deactivate", ids=["s"]), events=[(5, EVENT), (7, EVENT)], log=OTHER)
    assert sorted(sent(kit)) == [("s", "e3"), ("s", "e4"), ("s", "e5")]


def test_a_version_is_kept_until_every_log_has_ended_it(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(1, 2, activate(2, ("s", 1)))
    kit.frame(2, 3, control(3, "deactivate", ids=["s"]))
    assert "s" in kit.registry.numbers
    # The other log never activated it: its dispatcher was away for the whole of it.
    kit.frame(1, 2, control(2, "deactivate", ids=["s"]), log=OTHER)
    assert "s" not in kit.registry.numbers


def test_a_join_begins_nothing_that_another_log_has_active(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(1, 2, activate(2, ("s", 1)))
    # Read late: these events were accepted before there was the subscription.
    kit.frame(1, 3, control(2, "join", incarnation=1), events=[(3, EVENT)], log=OTHER)
    assert sent(kit) == []


def test_what_a_crashed_leader_stored_stays_if_another_log_has_begun_it(kit: Kit) -> None:
    kit.store(item("begun"), item("forgotten"))
    kit.frame(1, 2, activate(2, ("begun", 1)), log=OTHER)
    kit.frame(1, 2, control(2, "join", incarnation=2), incarnation=2)
    kit.frame(2, 5, activate(3, ("begun", 1)), events=[(4, EVENT), (5, EVENT)], incarnation=2)
    assert sent(kit) == [("begun", "e4"), ("begun", "e5")]
    assert kit.registry.logs[LOG].until[kit.registry.numbers["forgotten"][0]] == 2


def test_a_renewal_counts_in_the_log_that_has_it(kit: Kit) -> None:
    kit.store(item("s", expires=10))
    kit.frame(1, 2, activate(2, ("s", 1)))
    kit.frame(1, 2, activate(2, ("s", 1)), log=OTHER)
    kit.frame(2, 4, control(3, "renew", expiries=[("s", 100)]), events=[(4, EVENT)], times={4: 50})
    # An older renewal of the other log is read late; this log's stays.
    kit.frame(2, 3, control(3, "renew", expiries=[("s", 20)]), log=OTHER)
    reopen(kit)
    kit.frame(4, 5, events=[(5, EVENT)], times={5: 60})
    kit.frame(3, 7, events=[(6, EVENT), (7, EVENT)], times={6: 15, 7: 60}, log=OTHER)
    assert sent(kit) == [("s", "e4"), ("s", "e5"), ("s", "e6")]


def test_a_resumption_lets_go_what_both_logs_brought(kit: Kit) -> None:
    kit.store(item("s"))
    for log in (LOG, OTHER):
        kit.frame(1, 3, activate(2, ("s", 1)), control(3, "pause", ids=["s"], revision=7), log=log)
    kit.frame(3, 4, events=[(4, EVENT)])
    kit.frame(3, 5, events=[(5, EVENT)], log=OTHER)
    assert sent(kit) == []
    kit.frame(4, 5, control(5, "resume", ids=["s"], revision=8))
    assert sent(kit) == [("s", "e4"), ("s", "e5")]
    # As the other log has it, the subscription is still paused.
    kit.frame(5, 6, events=[(6, EVENT)], log=OTHER)
    assert len(sent(kit)) == 2
    kit.frame(6, 7, control(7, "resume", ids=["s"], revision=8), log=OTHER)
    assert sent(kit) == [("s", "e4"), ("s", "e5"), ("s", "e6")]


def test_a_resumption_that_is_read_late_lets_nothing_go(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(1, 2, activate(2, ("s", 1)), control(2, "pause", ids=["s"], revision=9))
    kit.frame(1, 3, activate(2, ("s", 1)), control(3, "pause", ids=["s"], revision=7), log=OTHER)
    kit.frame(2, 3, events=[(3, EVENT)])
    reopen(kit)
    kit.frame(3, 5, control(4, "resume", ids=["s"], revision=8), events=[(5, EVENT)], log=OTHER)
    # Its own events of after it were accepted before the newer pause.
    assert sent(kit) == [("s", "e5")]
    kit.frame(3, 4, control(4, "resume", ids=["s"], revision=10))
    assert sent(kit) == [("s", "e5"), ("s", "e3")]


def test_an_event_that_two_logs_bring_is_told_once_to_each(kit: Kit) -> None:
    kit.store(item("s"), item("t"))
    kit.frame(1, 4, activate(2, ("s", 1)), events=[(4, EVENT)])
    kit.frame(1, 5, activate(2, ("s", 1), ("t", 1)), events=[(4, EVENT), (5, EVENT)], log=OTHER)
    reopen(kit)
    kit.frame(4, 6, activate(5, ("t", 1)), events=[(6, EVENT)])
    kit.frame(5, 7, events=[(6, EVENT)], log=OTHER)
    assert sorted(sent(kit)) == [(name, event) for name in "st" for event in ("e4", "e5", "e6")]


def test_an_id_is_another_event_after_a_day(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(1, 3, activate(2, ("s", 1)), events=[(3, EVENT)])
    later = {3: 3 + repeats.KEPT}
    kit.frame(1, 3, activate(2, ("s", 1)), events=[(3, EVENT)], times=later, log=OTHER)
    assert sent(kit) == [("s", "e3"), ("s", "e3")]
    assert kit.writer.submit(Call(lambda db: delivered_ids.forget(db, 4 + repeats.KEPT, 10))).result(30) == 1
    assert kit.count("delivered_ids") == 0


def test_one_log_alone_notes_nobody(kit: Kit) -> None:
    kit.registry.multi_dispatcher = False
    kit.store(item("s"))
    kit.frame(1, 3, activate(2, ("s", 1)), events=[(3, EVENT)])
    assert kit.count("delivered_ids") == 0


def test_the_past_that_two_logs_keep_is_told_once(kit: Kit) -> None:
    kit.store(item("s"))
    for log in (LOG, OTHER):
        kit.frame(1, 10, control(10, "activate", versions=[("s", 1)], replays=[("s", 1)]), log=log)
    kit.replay("s", 0, 9, [(4, EVENT), (5, EVENT)], final=True)
    kit.frame(10, 11, events=[(11, EVENT)])
    assert sent(kit) == [("s", "e4"), ("s", "e5")]
    kit.replay("s", 0, 9, [(5, EVENT), (6, EVENT)], final=True, log=OTHER)
    assert sent(kit) == [("s", "e4"), ("s", "e5"), ("s", "e6"), ("s", "e11")]


def test_a_dispatcher_that_changes_its_log_leaves_the_other_dispatchers_logs_alone(kit: Kit) -> None:
    kit.writer.submit(FollowLog(kit.registry, HERE, "log-c", 1)).result(30)
    assert {name: log.retired for name, log in kit.registry.logs.items()} == {
        LOG: True,
        OTHER: False,
        "log-c": False,
    }
    reopen(kit)
    assert kit.registry.logs[LOG].retired
    assert not kit.registry.logs[OTHER].retired


def test_the_log_of_a_dispatcher_that_is_gone_for_good_keeps_nothing(kit: Kit) -> None:
    kit.store(item("s"), item("waits"))
    replay = control(2, "activate", versions=[("s", 1), ("waits", 1)], replays=[("waits", 1)])
    kit.frame(1, 2, activate(2, ("s", 1), ("waits", 1)))
    kit.frame(1, 2, replay, log=OTHER)
    kit.frame(2, 4, control(3, "deactivate", ids=["s"]), events=[(4, EVENT)])
    assert sent(kit) == []
    kit.writer.submit(RetireLogs(kit.registry, [HERE, THERE])).result(30)
    assert "s" in kit.registry.numbers
    kit.writer.submit(RetireLogs(kit.registry, [HERE])).result(30)
    assert "s" not in kit.registry.numbers
    # Nobody tells the rest of the past any more: what waited for it goes out.
    assert sent(kit) == [("waits", "e4")]
    kit.frame(4, 5, events=[(5, EVENT)])
    assert sent(kit) == [("waits", "e4"), ("waits", "e5")]
