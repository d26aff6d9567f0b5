"""The CloudEvents Subscriptions API on a running network: the same subscriptions as over REST."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event
from cloudevents.core.v1.event import CloudEvent

from tests.network import Hook, Network, until

SERVERS = 1
DISPATCHERS = 2
PATH = "/cloudevents/subscriptions"
TOPIC = "shop"
ATTRIBUTES = {"price": "number", "ce.source": "string", "ce.type": "string", "ce.subject": "string"}


@pytest.fixture(scope="module")
def shop(network: Network) -> str:
    assert network.http.put(f"/v1/topics/{TOPIC}", json={"attributes": ATTRIBUTES}).status_code == 201
    return f"/v1/topics/{TOPIC}/events"


def request(hook: Hook, path: str, **fields: Any) -> dict[str, Any]:
    return {"config": {"topic": TOPIC}, "sink": hook.url(path), "protocol": "HTTP", **fields}


def publish(network: Network, to: str, id: str, price: float, **context: str) -> None:
    attributes = {"id": id, "source": "/shops/7", "type": "sold", "datacontenttype": "application/json"}
    message = to_binary_event(CloudEvent({**attributes, **context}, {"price": price}))
    answer = network.http.post(to, headers=dict(message.headers), content=message.body)
    assert answer.status_code == 202, answer.text


def test_a_subscription_goes_the_whole_way(network: Network, hook: Hook, shop: str) -> None:
    wanted = request(
        hook,
        "/api",
        source="/shops/7",
        types=["sold", "returned"],
        filters=[{"not": {"suffix": {"subject": ".draft"}}}, {"urn:edn:filter": "price > 30"}],
        protocolsettings={"format": "cloudevents-structured"},
    )
    # The second dispatcher passes it on; the first one shows it.
    answer = httpx.post(network.urls[1] + PATH, json=wanted)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert answer.headers["location"] == f"{PATH}/{made['id']}"
    assert made["protocolsettings"].pop("secret").startswith("whsec_")
    assert made["protocolsettings"] == {"method": "POST", "format": "cloudevents-structured"}
    assert {name: made[name] for name in ("source", "types", "filters", "sink", "protocol")} == {
        **{name: wanted[name] for name in ("source", "types", "sink", "protocol")},
        "filters": [
            {"not": {"suffix": {"subject": ".draft"}}},
            {"urn:edn:filter": {"price": {"gt": 30}}},
        ],
    }
    assert network.http.get(answer.headers["location"]).json() == made

    publish(network, shop, "1", 31)
    publish(network, shop, "2", 29)
    publish(network, shop, "3", 31, type="bought")
    publish(network, shop, "4", 31, source="/shops/8")
    publish(network, shop, "5", 31, subject="tea.draft")
    publish(network, shop, "6", 32, type="returned", subject="tea")
    until("both", lambda: len(hook.at("/api")) >= 2)
    heard = [from_http_event(HTTPMessage(*one)) for one in hook.at("/api")]
    assert [one.get_attributes()["id"] for one in heard] == ["1", "6"]

    # The same over REST, and a change of it back.
    rest = network.http.get(f"/v1/subscriptions/{made['id']}").json()
    assert rest["topic"] == TOPIC
    assert rest["sink"]["format"] == "cloudevents-structured"
    changed = {**made, "types": ["bought"], "filters": [], "sink": hook.url("/changed")}
    answer = network.http.put(f"{PATH}/{made['id']}", json=changed)
    assert answer.status_code == 200, answer.text
    assert answer.json()["types"] == ["bought"]
    publish(network, shop, "7", 1)
    publish(network, shop, "8", 1, type="bought")
    [one] = until("the changed one", lambda: hook.at("/changed"))
    assert json.loads(one[1])["id"] == "8"

    answer = network.http.delete(f"{PATH}/{made['id']}")
    assert (answer.status_code, answer.json()["id"]) == (200, made["id"])
    assert network.http.get(f"/v1/subscriptions/{made['id']}").status_code == 404
    assert network.http.delete(f"{PATH}/{made['id']}").status_code == 404


def test_what_was_read_can_be_sent_back(network: Network, hook: Hook, shop: str) -> None:
    wanted = request(
        hook, "/same", types=["sold"], config={"topic": TOPIC, "recipient": "ann", "expires": "PT1H"}
    )
    made = network.http.post(PATH, json=wanted).json()
    shown = network.http.get(f"{PATH}/{made['id']}").json()
    answer = network.http.put(f"{PATH}/{made['id']}", json=shown)
    assert answer.status_code == 200, answer.text
    assert answer.json() == shown
    network.http.delete(f"{PATH}/{made['id']}")


@pytest.mark.parametrize(
    ("sink", "protocol", "settings"),
    [
        ({"url": "{}/json"}, "HTTP", {"method": "POST", "format": "json"}),
        (
            {"url": "{}/batch", "format": "cloudevents-batch"},
            "HTTP",
            {"method": "POST", "format": "cloudevents-batch"},
        ),
        (None, "SSE", {}),
    ],
)
def test_what_was_made_over_rest_is_shown_and_cancelled(
    network: Network, hook: Hook, shop: str, sink: dict[str, str] | None, protocol: str, settings: Any
) -> None:
    body: dict[str, Any] = {"topic": TOPIC, "filter": {"ce.type": "sold", "price": {"gt": 30}}}
    if sink is not None:
        body["sink"] = {**sink, "url": sink["url"].format(hook.url("")), "secret": "whsec_" + "A" * 32}
    made = network.http.post("/v1/subscriptions", json=body).json()
    shown = network.http.get(f"{PATH}/{made['id']}").json()
    assert shown == {
        "id": made["id"],
        "types": ["sold"],
        "filters": [{"urn:edn:filter": {"price": {"gt": 30}}}],
        "config": {"topic": TOPIC, "owner": made["owner"]},
        "sink": f"/v1/subscriptions/{made['id']}/events" if sink is None else body["sink"]["url"],
        "protocol": protocol,
        "protocolsettings": settings,
    }
    assert network.http.delete(f"{PATH}/{made['id']}").json() == shown
    assert network.http.get(f"/v1/subscriptions/{made['id']}").status_code == 404


def test_a_subtree_is_shown_and_cancelled_here_and_made_over_rest(network: Network, hook: Hook) -> None:
    network.http.put("/v1/topics/shops.eu", json={"attributes": ATTRIBUTES}).raise_for_status()
    body = {"topic": "shops.**", "filter": {"ce.type": "sold"}, "sink": {"url": hook.url("/subtree")}}
    made = network.http.post("/v1/subscriptions", json=body).json()
    shown = network.http.get(f"{PATH}/{made['id']}").json()
    # Of what its topics assume of events nothing is known, so the filter is in our dialect.
    assert (shown["config"]["topic"], shown["filters"]) == ("shops.**", [{"urn:edn:filter": body["filter"]}])
    assert network.http.put(f"{PATH}/{made['id']}", json=shown).status_code == 409
    answer = network.http.post(PATH, json=request(hook, "/subtree", config={"topic": "shops.**"}))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/config/topic")
    assert network.http.delete(f"{PATH}/{made['id']}").json() == shown


def test_plain_events_have_the_source_and_type_of_their_topic(network: Network, hook: Hook) -> None:
    network.http.put("/v1/topics/plain", json={"attributes": {"price": "number"}})
    wanted = {
        "source": "/v1/topics/plain",  # which says what topic, too
        "types": ["edn.plain"],
        "filters": [{"urn:edn:filter": {"price": 2}}],
        "sink": hook.url("/plain"),
        "protocol": "HTTP",
    }
    answer = network.http.post(PATH, json=wanted)
    assert answer.status_code == 201, answer.text
    network.http.post("/v1/topics/plain/events", json=[{"price": 1}, {"price": 2}])
    [(headers, _)] = until("the event", lambda: hook.at("/plain"))
    assert (headers["ce-source"], headers["ce-type"]) == ("/v1/topics/plain", "edn.plain")


def test_a_listing_is_an_array_in_pages(network: Network, hook: Hook, shop: str) -> None:
    network.http.put("/v1/topics/listed", json={"attributes": {"price": "number"}})
    for n in range(5):
        body = request(hook, "/listed", config={"topic": "listed", "id": f"listed-{n}"})
        assert network.http.post(PATH, json=body).status_code == 201
        again = network.http.post(PATH, json=body)
        assert again.status_code == 200
        assert "secret" not in again.json()["protocolsettings"]
    seen: list[str] = []
    url = f"{PATH}?topic=listed&limit=2"
    while url:
        answer = network.http.get(url)
        seen += [one["id"] for one in answer.json()]
        url = str(answer.links.get("next", {}).get("url", ""))
    assert seen == [f"listed-{n}" for n in range(5)]
    assert {one["id"] for one in network.http.get(PATH).json()} >= set(seen)


@pytest.mark.parametrize(
    ("change", "status", "pointer", "says"),
    [
        ({"protocol": "AMQP"}, 422, "/protocol", 'protocol must be HTTP, got "AMQP"'),
        ({"protocol": "http"}, 422, "/protocol", 'protocol must be HTTP, got "http"'),
        ({"sink": "mailto:ann@example.org"}, 422, "/sink", "https://"),
        ({"sink": "https://10.0.0.1/"}, 422, "/sink", "must be public"),
        ({"sinkcredential": {"credentialtype": "PLAIN"}}, 422, "/sinkcredential", "must be complete"),
        (
            {"sinkCredential": {"credentialtype": "PLAIN", "identifier": "ann"}},
            422,
            "/sinkcredential",
            "must have identifier and secret",
        ),
        ({"protocolsettings": {"method": "PUT"}}, 422, "/protocolsettings/method", "POST"),
        (
            {"protocolsettings": {"headers": {"host": "b"}}},
            422,
            "/protocolsettings/headers",
            "must not be set",
        ),
        ({"config": {}}, 422, "/config/topic", "config.topic must name a topic"),
        ({"config": {"topic": "none"}}, 404, "/config/topic", "does not exist"),
        ({"config": {}, "source": "/v1/topics/none"}, 404, "/source", "does not exist"),
        ({"config": {"topic": TOPIC, "expires": "PT0S"}}, 422, "/config/expires", "future"),
        ({"config": {"topic": TOPIC, "colour": "red"}}, 422, "/config/colour", "not permitted"),
        ({"filters": [{"sql": "type = 'sold'"}]}, 422, "/filters/0/sql", "the dialect must be one of"),
        ({"filters": [{"exact": {"region": "eu"}}]}, 422, "/filters/0/exact/region", "ce.region"),
        ({"types": []}, 422, "/types", "at least 1"),
        ({"protocolsettings": {"secret": "x"}}, 422, "/protocolsettings/secret", "whsec_"),
    ],
)
def test_what_is_refused_is_named(
    network: Network, hook: Hook, shop: str, change: dict[str, Any], status: int, pointer: str, says: str
) -> None:
    answer = network.http.post(PATH, json={**request(hook, "/refused"), **change})
    assert answer.status_code == status, answer.text
    problem = answer.json()
    assert problem["errors"][0]["pointer"] == pointer
    assert says in problem["detail"]


def test_headers_and_credentials_are_sent_and_other_settings_stay(
    network: Network, hook: Hook, shop: str
) -> None:
    wanted = {
        **request(hook, "/settings"),
        "sinkcredential": {"credentialtype": "PLAIN", "identifier": "ann", "secret": "sesame"},
        "protocolsettings": {"headers": {"X-Environment": "test"}},
    }
    made = network.http.post(PATH, json=wanted).json()
    assert made["sinkcredential"] == {"credentialtype": "PLAIN"}
    assert made["protocolsettings"]["headers"] == {"x-environment": "test"}
    # REST sets what this API has no field for; a change here, with what is shown, keeps it.
    path = f"/v1/subscriptions/{made['id']}"
    shown = network.http.get(path).json()
    sink = {**shown["sink"], "rate": 50, "ordered": False}
    network.http.put(path, json={"filter": shown["filter"], "sink": sink}).raise_for_status()
    body = network.http.get(f"{PATH}/{made['id']}").json()
    network.http.put(f"{PATH}/{made['id']}", json=body).raise_for_status()
    assert network.http.get(path).json()["sink"] == sink
    publish(network, shop, "settings-1", 5)
    [(headers, _)] = until("the event", lambda: hook.at("/settings"))
    assert headers["x-environment"] == "test"
    assert headers["authorization"] == "Basic YW5uOnNlc2FtZQ=="
    assert network.http.delete(f"{PATH}/{made['id']}").status_code == 200


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"id": "another"}, "/id"),
        ({"config": {"topic": "elsewhere"}}, "/config/topic"),
        ({"config": {"owner": "bob"}}, "/config/owner"),
    ],
)
def test_what_stays_is_not_changed(
    network: Network, hook: Hook, shop: str, change: dict[str, Any], pointer: str
) -> None:
    made = network.http.post(PATH, json=request(hook, "/stays")).json()
    answer = network.http.put(f"{PATH}/{made['id']}", json={**made, **change})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (409, pointer)
    assert network.http.delete(f"{PATH}/{made['id']}").status_code == 200


@pytest.mark.parametrize(
    ("path", "allowed"), [("", "GET, POST, OPTIONS"), ("/x", "GET, PUT, DELETE, OPTIONS")]
)
def test_options_tells_the_methods(network: Network, path: str, allowed: str) -> None:
    answer = network.http.options(PATH + path)
    assert (answer.status_code, answer.headers["allow"]) == (200, allowed)
