"""Pausing, resuming and the past of a new subscription: what is kept, what goes out, in which order."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn import protocol
from edn_server.ingest.control_records import FollowLog
from edn_server.storage.addresses import url_of
from tests.unit.server.serverkit import LOG, Kit, activate, control, item

EVENT = {"symbol": "GE", "price": 31.0}
A, B = "http://127.0.0.1:1/a", "http://127.0.0.1:1/b"


def sent(kit: Kit) -> list[tuple[str, str, str]]:
    """(address, subscription, event) of what may go out, in order."""
    return [
        (url_of(row.address), match["subscription"], entry["event"]["id"])
        for row in kit.rows()
        if row.address
        for entry in kit.body(row)["notifications"]
        for match in entry["matches"]
    ]


def events_sent(kit: Kit, subscription: str = "s") -> list[str]:
    return [event for _, name, event in sent(kit) if name == subscription]


def began(kit: Kit, *names: str, url: str = A) -> None:
    kit.store(*(item(name, url=url) for name in names))
    kit.frame(0, 1, activate(1, *((name, 1) for name in names)))


def test_from_a_pause_on_notifications_are_kept_and_a_resume_lets_them_go_in_order(kit: Kit) -> None:
    began(kit, "s", "t")
    kit.frame(1, 4, control(3, "pause", ids=["s"]), events=[(2, EVENT), (4, EVENT)])
    assert events_sent(kit) == ["e2"]
    kit.frame(4, 5, events=[(5, EVENT)])
    assert events_sent(kit) == ["e2"]
    assert events_sent(kit, "t") == ["e2", "e4", "e5"]
    kit.frame(5, 8, control(7, "resume", ids=["s"]), events=[(6, EVENT), (8, EVENT)])
    assert events_sent(kit) == ["e2", "e4", "e5", "e6", "e8"]
    assert not any(not row.address for row in kit.rows())


def test_a_pause_survives_a_restart(kit: Kit) -> None:
    began(kit, "s")
    kit.frame(1, 2, control(2, "pause", ids=["s"]))
    kit.reopen()
    kit.frame(2, 3, events=[(3, EVENT)])
    assert events_sent(kit) == []
    kit.reopen()
    kit.frame(3, 4, control(4, "resume", ids=["s"]))
    assert events_sent(kit) == ["e3"]


def test_what_was_kept_goes_to_the_sink_of_the_resumption_in_the_name_of_its_recipient(kit: Kit) -> None:
    began(kit, "s")
    kit.frame(1, 3, control(2, "pause", ids=["s"]), events=[(3, EVENT)])
    moved = msgspec.structs.replace(item("s", version=2, url=B), recipient="the other one")
    kit.store(moved)
    kit.frame(3, 5, control(4, "change", versions=[("s", 2)]), events=[(5, EVENT)])
    kit.collect()
    assert events_sent(kit) == []
    kit.frame(5, 6, control(6, "resume", ids=["s"]))
    assert sent(kit) == [(B, "s", "e3"), (B, "s", "e5")]
    recipients = {
        match["recipient"]
        for row in kit.rows()
        for entry in kit.body(row)["notifications"]
        for match in entry["matches"]
    }
    assert recipients == {"the other one"}


def test_the_end_of_a_paused_subscription_drops_what_was_kept(kit: Kit) -> None:
    began(kit, "s")
    kit.frame(1, 3, control(2, "pause", ids=["s"]), events=[(3, EVENT)])
    kit.frame(3, 5, control(5, "deactivate", ids=["s"]), events=[(4, EVENT)])
    assert kit.rows() == []
    kit.collect()
    assert kit.count("versions") == 0
    assert kit.count("pauses") == 0
    assert kit.count("events") == 0


def test_an_id_that_is_used_again_after_its_end_is_not_paused(kit: Kit) -> None:
    began(kit, "s")
    kit.frame(1, 2, control(2, "pause", ids=["s"]))
    kit.store(item("s", version=2, url=A))
    controls = [control(3, "deactivate", ids=["s"]), activate(4, ("s", 2))]
    kit.frame(2, 5, *controls, events=[(5, EVENT)])
    assert events_sent(kit) == ["e5"]


def test_a_failed_frame_leaves_the_pause_as_it_was(kit: Kit) -> None:
    began(kit, "s")
    kit.frame(1, 3, control(2, "pause", ids=["s"]), events=[(3, EVENT)])
    broken = protocol.Control(offset=99, time=1, kind="resume", ids=["s"])
    with pytest.raises(Exception, match="must be in"):
        kit.frame(3, 5, control(4, "resume", ids=["s"]), broken, events=[(5, EVENT)])
    assert events_sent(kit) == []
    kit.frame(3, 5, events=[(5, EVENT)])
    assert events_sent(kit) == []
    kit.frame(5, 6, control(6, "resume", ids=["s"]))
    assert events_sent(kit) == ["e3", "e5"]


# -- the past -------------------------------------------------------------------------------------------


def began_late(kit: Kit, *, offset: int = 10) -> None:
    """`s` begins at an offset with a past that is yet to come; `t` is there from the start."""
    began(kit, "t")
    kit.store(item("s", url=B))
    first = protocol.Control(
        offset=offset, time=offset, kind="activate", versions=[("s", 1)], replays=[("s", 1)]
    )
    kit.frame(1, offset, first)


def test_the_past_comes_before_what_was_found_live_meanwhile(kit: Kit) -> None:
    began_late(kit)
    kit.frame(10, 11, events=[(11, EVENT)])
    assert kit.replay("s", 0, 4, [(3, EVENT), (4, EVENT)]) == protocol.ReplayAck(4, done=False)
    kit.frame(11, 12, events=[(12, EVENT)])
    assert kit.replay("s", 4, 9, [(7, EVENT)], final=True) == protocol.ReplayAck(9, done=True)
    kit.frame(12, 13, events=[(13, EVENT)])
    assert events_sent(kit) == ["e3", "e4", "e7", "e11", "e12", "e13"]
    assert events_sent(kit, "t") == ["e11", "e12", "e13"]
    assert kit.count("replays") == 0


def test_only_what_matches_exactly_is_told_of_the_past(kit: Kit) -> None:
    began(kit, "t")
    kit.store(item("s", {"price": {"gt": 30}}, url=B))
    kit.frame(
        1, 5, protocol.Control(offset=5, time=5, kind="activate", versions=[("s", 1)], replays=[("s", 1)])
    )
    kit.replay("s", 0, 4, [(2, EVENT), (3, {"symbol": "GE", "price": 30.0}), (4, EVENT)], final=True)
    assert events_sent(kit) == ["e2", "e4"]


def test_a_page_that_comes_again_or_too_early_changes_nothing(kit: Kit) -> None:
    began_late(kit)
    kit.replay("s", 0, 4, [(3, EVENT)])
    assert kit.replay("s", 0, 4, [(3, EVENT)]) == protocol.ReplayAck(4, done=False)
    assert kit.replay("s", 7, 9, [(8, EVENT)], final=True) == protocol.ReplayAck(4, done=False)
    kit.reopen()
    assert kit.replay("s", 0, 4, [(3, EVENT)]) == protocol.ReplayAck(4, done=False)
    kit.replay("s", 4, 9, [(8, EVENT)], final=True)
    assert kit.replay("s", 4, 9, [(8, EVENT)], final=True).done
    assert events_sent(kit) == ["e3", "e8"]


def test_a_subscription_that_ends_while_its_past_comes_still_hears_of_all_it_was_there_for(kit: Kit) -> None:
    began_late(kit)
    kit.frame(10, 13, control(12, "deactivate", ids=["s"]), events=[(11, EVENT), (13, EVENT)])
    kit.reopen()
    kit.replay("s", 0, 9, [(3, EVENT)], final=True)
    assert events_sent(kit) == ["e3", "e11"]
    assert "s" not in kit.registry.numbers
    assert kit.count("replays") == 0


def test_a_dispatcher_that_comes_back_does_not_end_what_is_still_told_its_past(kit: Kit) -> None:
    began_late(kit)
    kit.frame(10, 12, control(12, "deactivate", ids=["s"]), events=[(11, EVENT)])
    kit.writer.submit(FollowLog(kit.registry, LOG, 2)).result(30)
    kit.replay("s", 0, 9, [(3, EVENT)], final=True)
    assert events_sent(kit) == ["e3", "e11"]
    assert "s" not in kit.registry.numbers


def test_a_paused_subscription_gets_its_past_first_when_it_resumes(kit: Kit) -> None:
    began_late(kit)
    kit.frame(10, 12, control(11, "pause", ids=["s"]), events=[(12, EVENT)])
    kit.replay("s", 0, 5, [(3, EVENT)])
    assert events_sent(kit) == []
    kit.frame(12, 13, control(13, "resume", ids=["s"]))
    assert events_sent(kit) == ["e3"]
    kit.frame(13, 14, control(14, "pause", ids=["s"]))
    kit.replay("s", 5, 9, [(8, EVENT)], final=True)
    kit.frame(14, 15, events=[(15, EVENT)])
    assert events_sent(kit) == ["e3"]
    kit.reopen()
    kit.frame(15, 16, control(16, "resume", ids=["s"]))
    assert events_sent(kit) == ["e3", "e8", "e12", "e15"]


def test_the_end_of_a_paused_subscription_cancels_its_past(kit: Kit) -> None:
    began_late(kit)
    kit.frame(10, 12, control(11, "pause", ids=["s"]), control(12, "deactivate", ids=["s"]))
    assert kit.replay("s", 0, 5, [(3, EVENT)]).done
    kit.frame(12, 13, events=[(13, EVENT)])
    assert events_sent(kit) == []
    assert kit.count("replays") == 0


STEPS = st.lists(
    st.tuples(st.sampled_from(["event", "pause", "resume", "change", "restart"]), st.booleans()), max_size=25
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_whatever_the_order_of_pauses_and_events_nothing_is_lost_or_repeated(
    steps: list[tuple[str, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Against a list that is kept by hand: a step and whether it begins a new frame."""
    kit = Kit(tmp_path_factory.mktemp("holds"))
    try:
        began(kit, "s")
        offset, after, version = 1, 1, 1
        paused, expected, kept = False, list[str](), list[str]()
        controls: list[protocol.Control] = []
        events: list[tuple[int, dict[str, object]]] = []

        def flush() -> None:
            nonlocal after
            if offset > after:
                kit.frame(after, offset, *controls, events=events)
                after = offset
                controls.clear()
                events.clear()

        for step, fresh in steps:
            if fresh:
                flush()
            if step == "restart":
                flush()
                kit.reopen()
                continue
            offset += 1
            match step:
                case "event":
                    events.append((offset, EVENT))
                    (kept if paused else expected).append(f"e{offset}")
                case "pause":
                    controls.append(control(offset, "pause", ids=["s"]))
                    paused = True
                case "resume":
                    controls.append(control(offset, "resume", ids=["s"]))
                    expected += kept
                    kept, paused = [], False
                case "change":
                    version += 1
                    kit.store(item("s", version=version, url=A))
                    controls.append(control(offset, "change", versions=[("s", version)]))
        flush()
        assert events_sent(kit) == expected
        held = [event for _, event in kit.told()]
        assert len(held) - len(expected) == len(kept)
        kit.collect()
        assert events_sent(kit) == expected
        assert np.count_nonzero(kit.registry.held) == (1 if paused else 0)
    finally:
        kit.close()
