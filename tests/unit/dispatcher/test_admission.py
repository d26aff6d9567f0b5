"""Whether events are accepted: every reason to refuse them is asked for in one place."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.servers.admission import PENDING_BYTES, Admission
from dispatcher.servers.pipeline import Backpressure
from edn.errors import Overloaded, Unavailable


def admission(*, pending: int = 0, shortage: str | None = None, outage: str | None = None) -> Admission:
    log: Any = SimpleNamespace(pending=pending, unavailable=outage)
    upkeep: Any = SimpleNamespace(shortage=shortage, count=lambda size: None)
    return Admission(log, upkeep, Backpressure(lambda: 0))


def test_events_are_accepted_where_nothing_is_in_the_way() -> None:
    made = admission()
    asyncio.run(made.admit(100))
    made.check()
    assert made.accepting()


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"shortage": "the disk is short"}, "the disk is short"),
        ({"outage": "the database does not answer"}, "the database does not answer"),
    ],
)
def test_readiness_metrics_and_publishers_hear_the_same(state: dict[str, Any], reason: str) -> None:
    made = admission(**state)
    assert not made.accepting()
    with pytest.raises(Unavailable, match=reason):
        made.check()
    with pytest.raises(Unavailable, match=reason):
        asyncio.run(made.admit(100))


def test_publishers_are_refused_while_too_much_waits_for_the_disk() -> None:
    made = admission(pending=PENDING_BYTES + 1)
    with pytest.raises(Overloaded):
        asyncio.run(made.admit(100))
    assert made.accepting()
