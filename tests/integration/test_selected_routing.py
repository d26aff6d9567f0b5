"""A dispatcher that routes by a few attributes holds fewer rectangles, and nobody misses an event."""

from __future__ import annotations

from typing import Any

import pytest

from tests.network import Network, Receiver, until

SERVERS = 1
DISPATCHER_OPTIONS = ["--summary-attributes", "1"]


@pytest.mark.slow
def test_events_are_routed_by_the_attribute_that_rules_out_most(network: Network, receiver: Receiver) -> None:
    door = network.http
    door.put("/v1/topics/few", json={"attributes": {"x": "number", "y": "number"}}).raise_for_status()
    # Ten narrow intervals of x, under each ten wide ones of y, none of which covers another.
    many = [
        {
            "id": f"few-{column}-{row}",
            "topic": "few",
            "filter": {
                "x": {"between": [10 * column, 10 * column + 1]},
                "y": {"between": [row, 500 + row]},
            },
            "sink": {"url": receiver.address("few")},
        }
        for column in range(10)
        for row in range(10)
    ]
    door.post("/v1/subscriptions", json=many).raise_for_status()

    def summary() -> dict[str, Any]:
        answer: dict[str, Any] = door.get("/v1/servers/s1/summary").raise_for_status().json()
        return answer

    def summarised() -> bool:
        return any((held["maximal"], held["widenings"]) == (10, 0) for held in summary()["topics"].values())

    until("a summary of one attribute", summarised)
    events = [
        {"$id": "wanted", "x": 20.5, "y": 3.5},
        {"$id": "other y", "x": 20.5, "y": 999},
        {"$id": "other x", "x": 15, "y": 3.5},
    ]
    door.post("/v1/topics/few/events", json=events).raise_for_status()
    receiver.await_quiet(4)
    delivered = sorted(pair for delivery in receiver.deliveries() for pair in delivery.pairs())
    assert delivered == [(f"few-2-{row}", "wanted") for row in range(4)]
    assert (summary()["routed"], summary()["asked"]) == (2, 3)
