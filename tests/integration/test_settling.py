"""Single rectangles give way to a summary, so that the precision applies to what was subscribed."""

from __future__ import annotations

from typing import Any

import httpx

from tests.network import Network, until

SERVERS = 1


def held(door: httpx.Client) -> dict[str, Any]:
    topics: dict[str, dict[str, Any]] = door.get("/v1/servers/s1/summary").raise_for_status().json()["topics"]
    return next(iter(topics.values()), {"maximal": 0, "rectangles": 0, "widenings": 0})


def test_what_was_subscribed_is_summarised_once_it_is_quiet(network: Network) -> None:
    with httpx.Client(base_url=network.url, timeout=30) as door:
        door.put("/v1/topics/settling", json={"attributes": {"x": "number"}}).raise_for_status()
        many = [
            {
                "topic": "settling",
                "filter": {"x": {"between": [10 * number, 10 * number + 1]}},
                "sink": {"url": "http://127.0.0.1:9/nowhere"},
            }
            for number in range(100)
        ]
        door.post("/v1/subscriptions", json=many).raise_for_status()
        until("a summary", lambda: held(door)["maximal"] == 100 and held(door)["widenings"] == 0)
        assert held(door)["rectangles"] == 100
        door.put("/v1/tuning", json={"precision": 0.1}).raise_for_status()
        assert held(door)["rectangles"] == 10
        door.put("/v1/tuning", json={"precision": 1}).raise_for_status()
        assert held(door)["rectangles"] == 100
