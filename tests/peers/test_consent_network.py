"""Sinks that are asked for their consent, on a running network: refused, granted, granted later, kept."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.network import Hook, Network, until

ORIGIN = "edn.example.org"
SERVERS = 1
SERVER_OPTIONS = [
    *("--webhook-origin", ORIGIN),
    *("--webhook-callback", "https://edn.example.org/edn"),
    *("--retry-steps", "0.2"),
]
GRANTED = {"WebHook-Allowed-Origin": ORIGIN, "WebHook-Allowed-Rate": "60000"}
EVENTS = "/v1/topics/asked/events"


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> None:
    network.http.put("/v1/topics/asked", json={"attributes": {"price": "number"}}).raise_for_status()


def subscribe(network: Network, hook: Hook, path: str) -> dict[str, Any]:
    sink = {"url": hook.url(path), "format": "cloudevents-binary", "consent": True}
    answer = network.http.post("/v1/subscriptions", json={"topic": "asked", "sink": sink})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    assert made["sink"]["consent"] is True
    return made


def consent_of(network: Network, id: str) -> str | None:
    found: str | None = network.http.get(f"/v1/subscriptions/{id}").json()["delivery"]["consent"]
    return found


def test_a_sink_that_allows_somebody_else_is_refused_at_both_doors(network: Network, hook: Hook) -> None:
    hook.allowed["/other"] = {"WebHook-Allowed-Origin": "example.com", "WebHook-Allowed-Rate": "*"}
    sink = {"url": hook.url("/other"), "format": "cloudevents-batch", "consent": True}
    answer = network.http.post("/v1/subscriptions", json={"topic": "asked", "sink": sink})
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["title"] == "Invalid sink"
    assert problem["errors"][0]["pointer"] == "/sink/url"
    assert 'it allows only "example.com" to post' in problem["detail"]
    body = {
        "config": {"topic": "asked"},
        "sink": hook.url("/other"),
        "protocol": "HTTP",
        "protocolsettings": {"consent": True},
    }
    answer = network.http.post("/cloudevents/subscriptions", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/sink")
    assert len(hook.asked_at("/other")) == 2
    assert network.http.get("/v1/subscriptions?topic=asked").json()["subscriptions"] == []


def test_consent_is_asked_for_once_and_outlives_a_crash(network: Network, hook: Hook) -> None:
    hook.allowed["/granted"] = GRANTED
    made = subscribe(network, hook, "/granted")
    [asked] = hook.asked_at("/granted")
    assert asked["webhook-request-origin"] == ORIGIN
    assert int(asked["webhook-request-rate"]) > 0
    assert asked["webhook-request-callback"].startswith("https://edn.example.org/edn/cloudevents/consent/s1?")
    assert consent_of(network, made["id"]) == "granted"
    network.http.post(EVENTS, json={"price": 1})
    [(headers, _)] = until("the event", lambda: hook.at("/granted"))
    assert headers["webhook-request-origin"] == ORIGIN

    hook.allowed["/granted"] = {}
    network.servers["s1"].kill()
    network.servers["s1"].start()
    network.servers["s1"].await_ready()
    network.await_servers("ready", "s1")
    network.http.post(EVENTS, json={"price": 2})

    def ids() -> set[str]:
        """Returns the webhook-ids so far: the crash may repeat the first POST under its id."""
        return {headers["webhook-id"] for headers, _ in hook.at("/granted")}

    until("the event after the crash", lambda: len(ids()) == 2)
    assert len(hook.asked_at("/granted")) == 1
    network.http.delete(f"/v1/subscriptions/{made['id']}")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_sink_may_consent_later(network: Network, hook: Hook, method: str) -> None:
    path = f"/later/{method}"
    made = subscribe(network, hook, path)
    assert consent_of(network, made["id"]) == "awaiting"
    network.http.post(EVENTS, json=[{"price": 1}, {"price": 2}])
    until("another question", lambda: len(hook.asked_at(path)) >= 2)
    assert hook.at(path) == []
    callback = urlsplit(hook.asked_at(path)[0]["webhook-request-callback"])
    # The address is the operator's: a proxy in front of the dispatcher, say.
    here = f"{callback.path.removeprefix('/edn')}?{callback.query}"
    assert network.http.request(method, here[:-1]).status_code == 404
    assert network.http.request(method, here.replace("/s1?", "/s2?")).status_code == 404
    answer = network.http.request(method, here, headers={"WebHook-Allowed-Rate": "6000"})
    assert (answer.status_code, answer.json()) == (200, {"consent": "granted"})
    until("both events", lambda: len(hook.at(path)) == 2)
    assert consent_of(network, made["id"]) == "granted"
    network.http.delete(f"/v1/subscriptions/{made['id']}")


def test_sinks_are_not_asked_unless_somebody_wants_it(network: Network, hook: Hook) -> None:
    sink = {"url": hook.url("/free"), "format": "cloudevents-binary"}
    made = network.http.post("/v1/subscriptions", json={"topic": "asked", "sink": sink}).json()
    assert "consent" not in made["sink"]
    assert consent_of(network, made["id"]) is None
    network.http.post(EVENTS, json={"price": 1})
    until("the event", lambda: hook.at("/free"))
    assert hook.asked_at("/free") == []
    plain = {"url": hook.url("/plain"), "consent": True}
    made = network.http.post("/v1/subscriptions", json={"topic": "asked", "sink": plain}).json()
    assert consent_of(network, made["id"]) == "awaiting"
    assert hook.asked_at("/plain")
    network.http.delete(f"/v1/subscriptions/{made['id']}")
