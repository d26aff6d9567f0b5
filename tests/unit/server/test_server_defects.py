"""Planted defects do in a server what they say."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from types import SimpleNamespace

import pytest
from serverkit import LOG, Kit, activate, item

from tests.faults import defects

EVENT = {"symbol": "GE", "price": 5}
Plant = Callable[[Collection[str]], None]


def test_the_cursor_is_committed_before_the_outbox(
    kit: Kit, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.store(item("s"))
    kit.frame(0, 1, activate(1, ("s", 1)))
    seen: list[tuple[int, int]] = []

    def look(_: float) -> None:
        with closing(kit.folder.connect(read_only=True)) as db:
            ((cursor,),) = db.execute("SELECT cursor FROM logs WHERE log = ?", (LOG,))
            ((rows,),) = db.execute("SELECT count(*) FROM outbox")
            seen.append((cursor, rows))

    plant({"cursor-before-outbox"})
    monkeypatch.setattr(defects, "time", SimpleNamespace(sleep=look))
    kit.frame(1, 2, events=[(2, EVENT)])
    assert seen == [(2, 0)], "a process that is killed here has read an event that it never notifies"
    assert kit.told() == [("s", "e2")]


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_gap_in_the_stream_goes_unseen(kit: Kit, plant: Plant, forgetful: bool) -> None:
    kit.store(item("s"))
    kit.frame(0, 1, activate(1, ("s", 1)))
    if forgetful:
        plant({"forget-the-join"})
    applied = kit.frame(3, 4, events=[(4, EVENT)])
    assert applied.gap is not forgetful
    assert applied.ack.cursor == (4 if forgetful else 1)
