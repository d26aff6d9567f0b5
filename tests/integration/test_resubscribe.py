"""An id whose subscription has expired is free at once, not only after the next sweep."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from tests.network import Network, Receiver, until

SERVERS = 1
TOPIC = "stocks.resubscribed"


def test_an_expired_subscription_is_never_answered_as_if_it_stood(
    network: Network, receiver: Receiver
) -> None:
    http = network.http
    assert http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"symbol": "string"}}).status_code == 201
    asked: dict[str, Any] = {"id": "again", "topic": TOPIC, "sink": {"url": receiver.address("a")}}
    first = http.post("/v1/subscriptions", json={**asked, "expires": "PT1S"})
    assert first.status_code == 201, first.text
    ends = datetime.fromisoformat(first.json()["expires"])
    # From the first moment after the expiry on: the sweep comes up to a second later.
    time.sleep(max(0.0, (ends - datetime.now(UTC)).total_seconds()) + 0.01)
    second = http.post("/v1/subscriptions", json=asked)
    assert second.status_code == 201, second.text
    assert second.json()["expires"] is None
    assert http.get("/v1/subscriptions/again").status_code == 200
    event = {"$id": "after", "symbol": "GE"}
    assert http.post(f"/v1/topics/{TOPIC}/events", json=event).status_code == 202
    until("the notification", lambda: ("again", "after") in receiver.webhook_ids())


def test_what_expired_before_it_was_subscribed_anew_stays_ended(network: Network, receiver: Receiver) -> None:
    """Another topic, filter and sink under the id of a subscription that is over but not swept."""
    http = network.http
    other = f"{TOPIC}.other"
    assert http.put(f"/v1/topics/{other}", json={"attributes": {"symbol": "string"}}).status_code == 201
    old = {"id": "moves", "topic": TOPIC, "sink": {"url": receiver.address("old")}, "expires": "PT1S"}
    first = http.post("/v1/subscriptions", json=old)
    assert first.status_code == 201, first.text
    ends = datetime.fromisoformat(first.json()["expires"])
    time.sleep(max(0.0, (ends - datetime.now(UTC)).total_seconds()) + 0.01)
    new = {"id": "moves", "topic": other, "sink": {"url": receiver.address("new")}}
    second = http.post("/v1/subscriptions", json=new)
    assert second.status_code == 201, second.text
    for topic in (TOPIC, other):
        event = {"$id": f"to {topic}", "symbol": "GE"}
        assert http.post(f"/v1/topics/{topic}/events", json=event).status_code == 202
    until("the new one's notification", lambda: ("moves", f"to {other}") in receiver.webhook_ids())
    until("the stream's end", lambda: http.get("/v1/servers").json()["servers"][0]["lag"] == 0)
    assert ("moves", f"to {TOPIC}") not in receiver.webhook_ids()
