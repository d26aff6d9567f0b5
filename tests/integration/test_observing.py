"""What a running network shows of itself: metrics that equal its API, trace contexts, explanations."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.network import Hook, Network, until

SERVERS = 2
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> None:
    attributes = {"symbol": "string", "price": "number"}
    assert network.http.put("/v1/topics/quotes", json={"attributes": attributes}).status_code == 201


def subscribe(network: Network, hook: Hook, id: str, filter: Any) -> dict[str, Any]:
    sink = {"url": hook.url(f"/{id}")}
    answer = network.http.post(
        "/v1/subscriptions", json={"id": id, "topic": "quotes", "filter": filter, "sink": sink}
    )
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def scrape(url: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(sample, labels) → value."""
    answer = httpx.get(f"{url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def publish(network: Network, events: Any, **headers: str) -> list[str]:
    answer = network.http.post("/v1/topics/quotes/events", json=events, headers=headers)
    assert answer.status_code == 202, answer.text
    ids: list[str] = answer.json()["ids"]
    return ids


def test_metrics_say_what_the_interface_says(network: Network, hook: Hook) -> None:
    subscribe(network, hook, "metered", {"symbol": "METERED"})
    publish(network, [{"symbol": "METERED", "price": n} for n in range(7)] + [{"symbol": "OTHER"}])
    until("seven notifications", lambda: sum(_count(body) for _, body in hook.at("/metered")) == 7)
    until("the heartbeat that tells of them", lambda: _sum(network, "notified") == 7)
    found, shown = scrape(network.url), network.http.get("/v1/servers").json()
    assert found["edn_dispatcher_events_published_total", ()] == shown["published"]
    for server in shown["servers"]:
        labels = (("server", server["id"]),)
        for metric, field in [
            ("server_subscriptions", "subscriptions"),
            ("server_forwarded_events_total", "forwarded"),
            ("server_useful_events_total", "useful"),
            ("server_matches_total", "matched"),
        ]:
            assert found[f"edn_dispatcher_{metric}", labels] == server[field], (metric, server)
        assert found["edn_dispatcher_server_ready", labels] == 1
    servers = [scrape(process.url) for process in network.servers.values()]
    delivered = sum(one["edn_server_notifications_delivered_total", ()] for one in servers)
    assert delivered == 7
    taken = sum(one["edn_server_posts_delivered_total", ()] for one in servers)
    assert sum(one["edn_server_delivery_seconds_count", ()] for one in servers) == taken
    assert sum(one["edn_server_subscriptions", ()] for one in servers) == 1


def test_no_label_grows_with_the_subscriptions(network: Network, hook: Hook) -> None:
    before = scrape(network.url).keys()
    for number in range(20):
        subscribe(network, hook, f"many-{number}", {"price": {"gt": number}})
    assert scrape(network.url).keys() == before


def _count(body: bytes) -> int:
    return len(json.loads(body)["notifications"])


def _sum(network: Network, field: str) -> int:
    return sum(server[field] for server in network.http.get("/v1/servers").json()["servers"])


def test_a_trace_id_that_is_sent_with_a_publish_is_found_at_the_webhook(network: Network, hook: Hook) -> None:
    subscribe(network, hook, "traced", {"symbol": "TRACED"})
    publish(network, {"symbol": "TRACED"}, traceparent=PARENT, tracestate="vendor=1,x=y z")
    until("the traced event", lambda: len(hook.at("/traced")) == 1)
    [(headers, body)] = hook.at("/traced")
    assert headers["traceparent"] == PARENT
    assert headers["tracestate"] == "vendor=1,x=y z"
    [entry] = json.loads(body)["notifications"]
    assert entry["traceparent"] == PARENT
    assert entry["tracestate"] == "vendor=1,x=y z"


def test_without_a_context_nothing_is_added(network: Network, hook: Hook) -> None:
    subscribe(network, hook, "untraced", {"symbol": "UNTRACED"})
    publish(network, {"symbol": "UNTRACED"}, traceparent="00-notatrace-01")
    until("the event", lambda: len(hook.at("/untraced")) == 1)
    [(headers, body)] = hook.at("/untraced")
    assert "traceparent" not in headers
    assert json.loads(body)["notifications"][0].keys() == {"topic", "event", "matches"}


def test_events_of_several_traces_in_one_post_keep_their_own(network: Network, hook: Hook) -> None:
    hook.status["/mixed"] = 503  # so that they gather
    subscribe(network, hook, "mixed", {"symbol": "MIXED"})
    network.http.post("/v1/subscriptions/mixed/pause")
    publish(network, {"symbol": "MIXED", "price": 1}, traceparent=PARENT)
    publish(network, {"symbol": "MIXED", "price": 2}, traceparent=OTHER)
    publish(network, {"symbol": "MIXED", "price": 3})
    hook.status["/mixed"] = 200
    network.http.post("/v1/subscriptions/mixed/resume")

    def entries() -> list[dict[str, Any]]:
        return [entry for _, body in hook.at("/mixed", 200) for entry in json.loads(body)["notifications"]]

    until("three events", lambda: len(entries()) == 3)
    assert [entry.get("traceparent") for entry in entries()] == [PARENT, OTHER, None]
    for headers, body in hook.at("/mixed", 200):
        traces = {entry.get("traceparent") for entry in json.loads(body)["notifications"]}
        assert headers.get("traceparent") == (traces.pop() if len(traces) == 1 else None)


def explain(network: Network, body: dict[str, Any]) -> dict[str, Any]:
    answer = network.http.post("/v1/topics/quotes/explain", json=body)
    assert answer.status_code == 200, answer.text
    explained: dict[str, Any] = answer.json()
    return explained


def test_an_event_is_explained_tier_by_tier_and_the_false_positive_is_named(
    network: Network, hook: Hook
) -> None:
    # A substring has no rectangle of its own: every symbol goes to its server, and the predicate decides.
    filter = {"symbol": {"contains": "ZZ"}, "price": {"between": [-1001, -1000]}}
    made = subscribe(network, hook, "substring", filter)
    event = {"symbol": "ABBA", "price": -1000.5}
    published = _published(network)
    explained = explain(network, {"event": event})
    by_server = {server["server"]: server for server in explained["servers"]}
    host = by_server[made["server"]]
    assert host["routed"]
    assert host["why"] in ("summary", "widening")
    [named] = [one for one in host["subscriptions"] if one["id"] == "substring"]
    assert not named["matches"]
    assert named["clauses"] == ['symbol contains "ZZ"']
    assert explained["false_positives"] == [made["server"]]
    assert explained["matched"] == 0
    assert [name for name, one in by_server.items() if one["routed"]] == [made["server"]]
    assert _published(network) == published, "explaining publishes and counts nothing"


def _published(network: Network) -> tuple[int, list[Any]]:
    shown = network.http.get("/v1/servers").json()
    return shown["published"], [(one["forwarded"], one["hit_ratio"]) for one in shown["servers"]]


def test_a_match_names_its_clauses(network: Network, hook: Hook) -> None:
    filter = {"price": {"gt": 5000}, "$any": [{"symbol": "X"}, {"symbol": {"prefix": "CLA"}}]}
    made = subscribe(network, hook, "clauses", filter)
    explained = explain(network, {"event": {"symbol": "CLAUSE", "price": 6000}})
    [host] = [one for one in explained["servers"] if one["server"] == made["server"]]
    [named] = [one for one in host["subscriptions"] if one["id"] == "clauses"]
    assert named["matches"]
    assert sorted(named["clauses"]) == ["price > 5000", 'symbol prefix "CLA"']
    assert host["rectangle"] is not None


def test_a_filter_is_explained_by_what_covers_it_and_by_recent_traffic(network: Network, hook: Hook) -> None:
    subscribe(network, hook, "wide", 'symbol == "COV" and price > 10')
    subscribe(network, hook, "narrow", 'symbol == "COV" and price > 30')
    publish(network, [{"symbol": "COV", "price": price} for price in (5, 15, 25, 35)])
    explained = explain(network, {"filter": 'symbol == "COV" and price > 20'})
    assert "wide" in explained["covered_by"]
    assert "narrow" in explained["covers"]
    assert "narrow" not in explained["covered_by"]
    assert explained["recent"]["matched"] == 2
    assert explained["recent"]["events"] >= 4
    assert explained["exact"]
    assert explained["rectangles"][0]["symbol"] == "COV"
    assert explained["examined"] == explained["subscriptions"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, None),
        ({"event": {"price": 1}, "filter": "price > 1"}, None),
        ({"event": [1]}, "/event"),
        ({"filter": {"price": {"gt": "x"}}}, "/filter/price/gt"),
    ],
)
def test_what_cannot_be_explained_is_refused_with_its_place(
    network: Network, body: dict[str, Any], pointer: str | None
) -> None:
    answer = network.http.post("/v1/topics/quotes/explain", json=body)
    assert answer.status_code == 422
    errors = answer.json().get("errors")
    assert (errors[0]["pointer"] if errors else None) == pointer
