"""CloudEvents with the Python and the JavaScript library: published and delivered in every mode."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from cloudevents.core.bindings.http import (
    HTTPMessage,
    from_http_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks import Webhook

from tests.network import Hook, Network, until
from tests.programs import require, unavailable

SERVERS = 1
TOPIC = "sold"
ATTRIBUTES = {
    "price": "number",
    "item.name": "string",
    "ce.source": "string",
    "ce.type": "string",
    "ce.subject": "string",
    "ce.rank": "integer",
}
FILTER = 'price > 30 and ce.type == "org.example.sold" and ce.source prefix "/shops/"'


@pytest.fixture(scope="module")
def topic(network: Network) -> str:
    assert network.http.put(f"/v1/topics/{TOPIC}", json={"attributes": ATTRIBUTES}).status_code == 201
    return f"/v1/topics/{TOPIC}/events"


def event(id: str, price: float = 31.5, **context: Any) -> CloudEvent:
    attributes = {
        "id": id,
        "source": "/shops/7",
        "type": "org.example.sold",
        "time": datetime(2026, 11, 16, 9, 30, tzinfo=UTC),
        "datacontenttype": "application/json",
        **context,
    }
    return CloudEvent(attributes, {"price": price, "item": {"name": "tea"}})


def subscribe(network: Network, hook: Hook, mode: str, path: str) -> dict[str, Any]:
    sink = {"url": hook.url(path), "format": f"cloudevents-{mode}"}
    answer = network.http.post("/v1/subscriptions", json={"topic": TOPIC, "filter": FILTER, "sink": sink})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def publish(network: Network, topic: str, message: HTTPMessage) -> httpx.Response:
    return network.http.post(topic, headers=dict(message.headers), content=message.body)


@pytest.mark.parametrize("to_http", [to_binary_event, to_structured_event], ids=["binary", "structured"])
@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_the_python_library_reads_what_it_wrote(
    network: Network, hook: Hook, topic: str, to_http: Any, mode: str
) -> None:
    path = f"/{to_http.__name__}/{mode}"
    made = subscribe(network, hook, mode, path)
    subject = 'café "au lait" 100%'
    sent = event(path, subject=subject, rank=3)
    # What it must not hear of goes first: it would be there by the time that the other one is.
    for one in (event(f"{path}cheap", price=1), event(f"{path}other", source="/else"), sent):
        answer = publish(network, topic, to_http(one))
        assert answer.status_code == 202, answer.text
    [(headers, body)] = until("the notification", lambda: hook.at(path))
    got = from_http_event(HTTPMessage(headers, body))
    assert got.get_data() == sent.get_data()
    for name in ("id", "source", "type", "subject", "time"):
        assert got.get_attributes()[name] == sent.get_attributes()[name], name
    assert str(got.get_attributes()["rank"]) == "3"
    assert got.get_attributes()["subscription"] == made["id"]
    # Signed as any other notification: by Standard Webhooks.
    verified = Webhook(made["sink"]["secret"]).verify(body, headers)
    assert verified == json.loads(body)
    network.http.delete(f"/v1/subscriptions/{made['id']}")


def test_the_same_source_and_id_is_the_same_event(network: Network, hook: Hook, topic: str) -> None:
    made = subscribe(network, hook, "structured", "/once")
    first, again = (publish(network, topic, to_binary_event(event("once"))) for _ in range(2))
    assert first.json() == again.json()
    elsewhere = publish(network, topic, to_structured_event(event("once", source="/shops/8")))
    assert elsewhere.status_code == 202
    until("both", lambda: len(hook.at("/once")) >= 2)
    told = [from_http_event(HTTPMessage(*one)).get_attributes() for one in hook.at("/once")]
    assert [(one["source"], one["id"]) for one in told] == [("/shops/7", "once"), ("/shops/8", "once")]
    network.http.delete(f"/v1/subscriptions/{made['id']}")


def test_a_batch_comes_in_and_goes_out_as_one(network: Network, hook: Hook, topic: str) -> None:
    """The Python library reads no batches, so its events are put together here."""
    made = subscribe(network, hook, "batch", "/batch")
    sent = [json.loads(to_structured_event(event(f"b{n}", price=30 + n)).body) for n in range(5)]
    headers = {"content-type": "application/cloudevents-batch+json; charset=utf-8"}
    answer = network.http.post(topic, headers=headers, content=json.dumps(sent))
    assert answer.json()["accepted"] == 5, answer.text
    [(head, body)] = until("the batch", lambda: hook.at("/batch"))
    assert head["content-type"] == "application/cloudevents-batch+json"
    assert [(one["id"], one["data"]) for one in json.loads(body)] == [(s["id"], s["data"]) for s in sent[1:]]
    network.http.delete(f"/v1/subscriptions/{made['id']}")


def test_after_a_failure_only_what_was_not_taken_comes_again(
    network: Network, hook: Hook, topic: str
) -> None:
    made = subscribe(network, hook, "binary", "/flaky")
    hook.status["/flaky"] = 503
    for n in range(3):
        publish(network, topic, to_binary_event(event(f"f{n}")))
    until("an attempt", lambda: hook.at("/flaky"))
    hook.status["/flaky"] = 200
    until("all three", lambda: len(hook.at("/flaky", 200)) == 3)
    assert [head["ce-id"] for head, _ in hook.at("/flaky", 200)] == ["f0", "f1", "f2"]
    network.http.delete(f"/v1/subscriptions/{made['id']}")


def test_plain_events_are_delivered_as_cloudevents_too(network: Network, hook: Hook) -> None:
    network.http.put("/v1/topics/bare", json={"attributes": {"price": "number"}})
    sink = {"url": hook.url("/bare"), "format": "cloudevents-binary"}
    network.http.post("/v1/subscriptions", json={"topic": "bare", "sink": sink})
    network.http.post("/v1/topics/bare/events", json={"price": 2})
    [(headers, body)] = until("the notification", lambda: hook.at("/bare"))
    got = from_http_event(HTTPMessage(headers, body))
    assert got.get_data() == {"price": 2}
    assert got.get_attributes()["source"] == "/v1/topics/bare"
    assert got.get_attributes()["type"] == "edn.bare"


# -- JavaScript -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("node", "npm")
    folder = tmp_path_factory.mktemp("javascript")
    install = ["npm", "install", "--no-audit", "--no-fund", "--silent", "cloudevents@10"]
    try:
        subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=120)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        unavailable(f"npm could not install cloudevents: {error}")
    return folder


@pytest.mark.parametrize("mode", ["binary", "structured", "batch"])
def test_the_javascript_library_goes_the_whole_way(
    network: Network, topic: str, javascript: Path, mode: str
) -> None:
    script = str(Path(__file__).with_name("peer_cloudevents.js"))
    done = subprocess.run(
        ["node", script, str(javascript), network.url, TOPIC, mode],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    [made] = [value for what, value in said if what == "subscription"]
    assert ["accepted", 3] in said
    heard = [value for what, value in said if what == "event"]
    assert [(one["id"], one["data"]["price"]) for one in heard] == [
        (f"js-{mode}-1", 99),
        (f"js-{mode}-3", 31),
    ]
    for one in heard:
        assert (one["source"], one["type"], one["subscription"]) == ("/shops/js", "org.example.sold", made)
        assert one["subject"] == ("mate" if mode == "binary" else "maté")
        assert one["data"]["item"] == {"name": "mate"}
    kinds = {value.partition(";")[0] for what, value in said if what == "delivered"}
    batch = "application/cloudevents-batch+json"
    assert kinds == {{"binary": "application/json", "batch": batch}.get(mode, "application/cloudevents+json")}
    assert network.http.get(f"/v1/subscriptions/{made}").status_code == 404
