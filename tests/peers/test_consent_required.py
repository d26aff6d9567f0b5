"""A network that posts to nobody who did not consent: every sink is asked, or refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from tests.network import Hook, Network, until
from tests.soap import messages

SERVERS = 1
DISPATCHER_OPTIONS = ("--require-consent", "--allow-mail-sinks")
SERVER_OPTIONS = ("--webhook-origin", "edn.example.org")
GRANTED = {"WebHook-Allowed-Origin": "edn.example.org"}


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> None:
    network.http.put("/v1/topics/t", json={"attributes": {"n": "number"}}).raise_for_status()


def spellings(url: str) -> dict[str, dict[str, Any]]:
    """All ways to name a sink at a URL that can be asked."""
    return {
        "plain": {"url": url},
        "in capitals": {"url": url.replace("http:", "HTTP:")},
        "unwilling": {"url": url, "consent": False},
        "format": {"url": url, "format": "cloudevents-structured"},
        "address": {"url": "cloudevents:?" + urlencode({"mode": "structured", "to": url})},
        "unwilling address": {
            "url": "cloudevents:?" + urlencode({"mode": "structured", "to": url, "consent": "0"})
        },
        "address in capitals": {"url": "CloudEvents:?" + urlencode({"mode": "binary", "to": url})},
    }


@pytest.mark.parametrize("how", spellings(""))
def test_no_spelling_of_a_sink_passes_without_its_consent(network: Network, hook: Hook, how: str) -> None:
    path = f"/silent/{how.replace(' ', '-')}"
    sink = spellings(hook.url(path))[how]
    answer = network.http.post("/v1/subscriptions", json={"topic": "t", "sink": sink})
    assert answer.status_code == 422, answer.text
    granted = f"/granted/{how.replace(' ', '-')}"
    hook.allowed[granted] = GRANTED
    sink = spellings(hook.url(granted))[how]
    answer = network.http.post("/v1/subscriptions", json={"topic": "t", "sink": sink})
    if answer.status_code == 422 and "capitals" in how:
        return  # no such scheme: refused is as good as asked
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["sink"]["consent"] is True
    assert made["sink"]["url"].lower() == hook.url(granted)
    assert hook.asked_at(granted)
    network.http.post("/v1/topics/t/events", json={"n": 1}).raise_for_status()
    until("a notification", lambda: bool(hook.at(granted)))
    assert not hook.at(path)
    # A change is asked about, too.
    changed = network.http.put(
        f"/v1/subscriptions/{made['id']}", json={"sink": {"url": hook.url(f"{path}/changed")}}
    )
    assert changed.status_code == 422


@pytest.mark.parametrize("url", ["mailto:ann@example.org", "soap:http://127.0.0.1:9/", "soap:?to=x"])
def test_a_sink_that_cannot_be_asked_is_refused(network: Network, url: str) -> None:
    answer = network.http.post("/v1/subscriptions", json={"topic": "t", "sink": {"url": url}})
    assert answer.status_code == 422, answer.text


def test_soap_subscribers_are_refused(network: Network, hook: Hook) -> None:
    hook.allowed["/soap"] = GRANTED
    body = (
        f"<w:Subscribe><w:Delivery><w:NotifyTo><a:Address>{hook.url('/soap')}</a:Address></w:NotifyTo>"
        "</w:Delivery><e:Topic>t</e:Topic></w:Subscribe>"
    )
    answer = network.http.post(
        "/soap", content=messages.envelope(body), headers={"content-type": "application/soap+xml"}
    )
    assert answer.status_code >= 400
    assert "can be asked, got" in answer.text


def test_a_stream_needs_no_consent(network: Network) -> None:
    assert network.http.post("/v1/subscriptions", json={"topic": "t"}).status_code == 201
