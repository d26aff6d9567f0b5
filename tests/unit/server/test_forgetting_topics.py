"""A server forgets a topic with its last version, and no sooner than the last row that needs its name."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest
from serverkit import LOG, Kit, activate, control, item, topic

from edn import protocol
from edn.errors import Conflict
from edn_server.outbox import cleanup
from edn_server.outbox.cleanup import Settle
from edn_server.storage.writer import Call
from edn_server.subscriptions.store import StoreVersions, bind_filters
from edn_server.subscriptions.topic_index import Topic

EVENT = {"symbol": "GE", "price": 5}


def forget(kit: Kit) -> int:
    kit.collect()
    return kit.writer.submit(cleanup.ForgetTopics(kit.registry)).result(30)


def settle(kit: Kit) -> None:
    rows = [(row.id, row.frame_id) for row in kit.rows()]
    kit.writer.submit(Settle(rows)).result(30)


def test_a_topic_goes_with_its_last_version(kit: Kit) -> None:
    kit.store(item("s"), item("t"))
    kit.frame(0, 2, activate(1, ("s", 1), ("t", 1)), events=[(2, EVENT)])
    settle(kit)
    kit.frame(2, 3, control(3, "deactivate", ids=["s"]))
    assert forget(kit) == 0
    kit.frame(3, 4, control(4, "deactivate", ids=["t"]))
    assert forget(kit) == 1
    assert kit.registry.topics == {}
    assert kit.registry.counters.topics() == {}
    assert kit.count("topics") == kit.count("versions") == 0
    kit.reopen()
    assert kit.registry.topics == {}


def test_a_waiting_row_keeps_the_name_of_its_topic(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(0, 3, activate(1, ("s", 1)), control(3, "deactivate", ids=["s"]), events=[(2, EVENT)])
    for _ in range(2):
        assert forget(kit) == 0
        assert kit.registry.topics[1].rectangles == 0
        assert kit.body(kit.rows()[0])["notifications"][0]["topic"] == "quotes"
        kit.reopen()
    settle(kit)
    assert forget(kit) == 1
    assert kit.count("topics") == 0


def test_a_topic_whose_only_store_was_for_nothing_goes(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(0, 1, control(1, "deactivate", versions=[("s", 1)]))
    assert forget(kit) == 1
    assert kit.registry.topics == {}


def test_a_store_in_the_transaction_that_forgets_a_topic_brings_it_back(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(0, 1, control(1, "deactivate", versions=[("s", 1)]))
    kit.collect()
    request = protocol.Store(LOG, 1, topic(), [item("t")], [])
    store = StoreVersions(kit.registry, kit.epoch, request, bind_filters(request))
    # While the writer waits, both jobs enter the queue: it commits them as one group.
    gate = Event()
    waiting = kit.writer.submit(Call(lambda _: gate.wait(30)))
    group = [kit.writer.submit(cleanup.ForgetTopics(kit.registry)), kit.writer.submit(store)]
    gate.set()
    for one in (waiting, *group):
        one.result(30)
    assert kit.count("topics") == 1
    assert kit.registry.topics[1].versions == 1
    kit.frame(1, 3, activate(2, ("t", 1)), events=[(3, EVENT)])
    assert kit.told() == [("t", "e3")]
    assert forget(kit) == 0


def test_numbers_that_are_used_again_count_for_their_new_topic(kit: Kit) -> None:
    kit.store(item("s"))
    kit.frame(0, 1, control(1, "deactivate", versions=[("s", 1)]))
    kit.collect()
    kit.store(item("u"), info=topic(2, name="others"))
    assert forget(kit) == 1
    assert list(kit.registry.topics) == [2]
    kit.reopen()
    assert forget(kit) == 0
    assert kit.registry.topics[2].versions == 1


def test_a_wide_topic_costs_what_is_used_of_it() -> None:
    """256 attributes took 9 MB for a single rectangle, whatever it constrained."""
    wide = Topic(1, "", "wide", [(f"a{n}", "string") for n in range(256)], "bitmap")
    assert wide._matcher is None
    assert wide._maximal is None
    [entry] = wide.allocate_entries(1)
    lo, hi = np.full((1, 256), -np.inf), np.full((1, 256), np.inf)
    lo[0, 200], hi[0, 200] = 1.0, 2.0
    wide.insert([entry], lo, hi)
    assert wide._matcher is not None
    assert wide._maximal is not None
    assert wide._matcher.nbytes + wide._maximal.nbytes < 64 << 10  # type: ignore[attr-defined]  # bitmap's
    point = np.zeros((1, 256))
    assert len(wide.match(point, 1)[1]) == 0
    point[0, 200] = 1.5
    assert wide.match(point, 1)[1].tolist() == [entry]
    wide.delete([entry])
    assert wide._matcher is None
    assert wide._maximal is None
    assert wide.match(point, 1)[1].tolist() == []


def test_a_store_that_comes_after_its_end_is_refused(kit: Kit) -> None:
    """The dispatcher gave up waiting and ended the version; nobody would ever end it again."""
    kit.frame(0, 1, control(1, "deactivate", versions=[("s", 7)]))
    with pytest.raises(Conflict, match="ended before it was stored"):
        kit.store(item("s", version=7))
    assert kit.registry.topics == {}
    assert kit.count("versions") == kit.count("topics") == 0
    kit.store(item("s", version=8))  # the next attempt
    kit.store(item("s", version=7), log="log-b")  # another dispatcher's
    assert len(kit.registry.versions) == 2


def test_ends_that_came_too_early_are_remembered_up_to_a_bound(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edn_server.subscriptions.registry.MOST_DISCARDED", 2)
    kit.frame(0, 1, control(1, "deactivate", versions=[("a", 1), ("b", 1), ("c", 1)]))
    assert [id for _, id, _ in kit.registry.discarded] == ["b", "c"]
