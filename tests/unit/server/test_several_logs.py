"""A server that follows several logs: each counts for itself; they begin and end while the server runs."""

from __future__ import annotations

import pytest
from serverkit import LOG, Kit, activate, control, item

from edn import protocol
from edn_server.ingest.control_records import FollowLog
from edn_server.storage import logs
from edn_server.storage.writer import Call

OTHER = "log-b"
EVENT = {"symbol": "GE", "price": 1}


@pytest.fixture
def kit(kit: Kit) -> Kit:
    """Joined both logs, each at its offset 1."""
    for log in (LOG, OTHER):
        kit.writer.submit(FollowLog(kit.registry, log, 1, shared=True)).result(30)
        kit.frame(0, 1, join(1), log=log)
    return kit


def join(offset: int, incarnation: int = 1) -> protocol.Control:
    return control(offset, "join", incarnation=incarnation, shared=True)


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
    kit.reopen()
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
    kit.frame(1, 3, join(2), events=[(3, EVENT)], log=OTHER)
    assert sent(kit) == []


def test_what_a_crashed_leader_stored_stays_if_another_log_has_begun_it(kit: Kit) -> None:
    kit.store(item("begun"), item("forgotten"))
    kit.frame(1, 2, activate(2, ("begun", 1)), log=OTHER)
    kit.frame(1, 2, join(2, 2), incarnation=2)
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
    kit.reopen()
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
    kit.reopen()
    kit.frame(3, 5, control(4, "resume", ids=["s"], revision=8), events=[(5, EVENT)], log=OTHER)
    # Its own events of after it were accepted before the newer pause.
    assert sent(kit) == [("s", "e5")]
    kit.frame(3, 4, control(4, "resume", ids=["s"], revision=10))
    assert sent(kit) == [("s", "e5"), ("s", "e3")]


def test_a_resumption_that_is_read_late_with_the_next_pause_lets_nothing_go(kit: Kit) -> None:
    """The log of a dead dispatcher: its successor sends the rest in one frame."""
    kit.store(item("s"))
    for log in (LOG, OTHER):
        kit.frame(1, 3, activate(2, ("s", 1)), control(3, "pause", ids=["s"], revision=7), log=log)
    resume, pause = control(4, "resume", ids=["s"], revision=8), control(5, "pause", ids=["s"], revision=9)
    kit.frame(3, 6, resume, pause, events=[(6, EVENT)])
    assert sent(kit) == []
    kit.frame(3, 6, resume, pause, log=OTHER)
    assert sent(kit) == []
    kit.reopen()
    kit.frame(6, 7, control(7, "resume", ids=["s"], revision=10))
    assert sent(kit) == [("s", "e6")]


def test_the_past_that_two_logs_keep_comes_before_what_is_new(kit: Kit) -> None:
    kit.store(item("s"))
    for log in (LOG, OTHER):
        kit.frame(1, 10, control(10, "activate", versions=[("s", 1)], replays=[("s", 1)]), log=log)
    kit.replay("s", 0, 9, [(4, EVENT), (5, EVENT)], final=True)
    kit.frame(10, 11, events=[(11, EVENT)])
    assert sent(kit) == [("s", "e4"), ("s", "e5")]
    kit.replay("s", 0, 9, [(6, EVENT)], final=True, log=OTHER)
    assert sent(kit) == [("s", "e4"), ("s", "e5"), ("s", "e6"), ("s", "e11")]


# -- logs that begin and end ----------------------------------------------------------------------------


def test_a_log_beside_others_does_not_retire_them(kit: Kit) -> None:
    kit.writer.submit(FollowLog(kit.registry, "log-c", 1, shared=True)).result(30)
    assert not any(log.retired for log in kit.registry.logs.values())
    kit.writer.submit(FollowLog(kit.registry, "log-d", 1)).result(30)
    assert {name for name, log in kit.registry.logs.items() if not log.retired} == {"log-d"}


def test_a_version_lives_until_a_log_that_is_not_read_yet_has_ended_it(kit: Kit) -> None:
    """A new log activates it, and may have events for it, though all others have ended it meanwhile."""
    kit.store(item("s"), item("gone"))
    for log in (LOG, OTHER):
        kit.frame(1, 3, activate(2, ("s", 1), ("gone", 1)), control(3, "follow", log="log-c"), log=log)
        kit.frame(3, 4, control(4, "deactivate", ids=["s"]), log=log)
    kit.reopen()
    assert "s" in kit.registry.numbers
    controls = [join(1), activate(2, ("s", 1)), control(4, "deactivate", ids=["s"])]
    kit.frame(0, 5, *controls, events=[(3, EVENT), (5, EVENT)], log="log-c")
    assert sent(kit) == [("s", "e3")]
    assert sorted(kit.registry.numbers) == ["gone"]
    # The new log does not activate what had ended before it began.
    for log in (LOG, OTHER):
        kit.frame(4, 5, control(5, "deactivate", ids=["gone"]), log=log)
    assert not kit.registry.numbers


def test_the_first_join_of_a_log_ends_what_it_does_not_activate(kit: Kit) -> None:
    kit.store(item("s"), item("moved"))
    for log in (LOG, OTHER):
        kit.frame(1, 2, activate(2, ("s", 1), ("moved", 1)), log=log)
    kit.frame(0, 4, join(1), activate(2, ("s", 1)), events=[(3, EVENT), (4, EVENT)], log="log-c")
    assert sent(kit) == [("s", "e3"), ("s", "e4")]
    # The second one, after a restart of the dispatcher, ends nothing that is active.
    kit.frame(4, 6, join(5, 2), events=[(6, EVENT)], log="log-c", incarnation=2)
    assert sent(kit)[2:] == [("s", "e6")]


def test_a_retired_log_keeps_nothing(kit: Kit) -> None:
    kit.store(item("s"), item("stays"))
    kit.store(item("leftover"), log=OTHER)
    for log in (LOG, OTHER):
        kit.frame(1, 2, activate(2, ("s", 1), ("stays", 1)), log=log)
    kit.frame(2, 4, control(3, "retire", log=OTHER), control(4, "deactivate", ids=["s"]))
    assert sorted(kit.registry.numbers) == ["stays"]
    assert kit.writer.submit(Call(lambda db: logs.trim_ended(db, 100))).result(30) == 2
    kit.reopen()
    assert OTHER not in kit.registry.logs
    assert sorted(kit.registry.numbers) == ["stays"]
    # A former owner that goes on sends its frames once more.
    kit.frame(0, 3, join(1), activate(2, ("stays", 1)), events=[(3, EVENT)], log=OTHER)
    assert sent(kit) == []
    kit.frame(4, 6, control(6, "deactivate", ids=["stays"]), events=[(5, EVENT)])
    assert sent(kit) == [("stays", "e5")]
    assert not kit.registry.numbers


@pytest.mark.parametrize("resumed", [True, False])
def test_rows_that_a_retired_log_paused_follow_the_log_that_retires_it(kit: Kit, resumed: bool) -> None:
    kit.store(item("s"))
    for log in (LOG, OTHER):
        kit.frame(1, 3, activate(2, ("s", 1)), control(3, "pause", ids=["s"], revision=7), log=log)
    if resumed:
        kit.frame(3, 4, control(4, "resume", ids=["s"], revision=8))
    kit.frame(3, 5, events=[(5, EVENT)], log=OTHER)
    assert sent(kit) == []
    kit.frame(4 if resumed else 3, 6, control(6, "retire", log=OTHER))
    assert sent(kit) == ([("s", "e5")] if resumed else [])
    kit.reopen()
    kit.frame(6, 8, control(7, "resume", ids=["s"], revision=9), events=[(8, EVENT)])
    assert sent(kit) == [("s", "e5"), ("s", "e8")]
