"""Sinks and sources of brokers on one network: what arrives, what is refused, what a failure shows."""

from __future__ import annotations

import secrets

import msgspec
import pytest
from standardwebhooks import Webhook

from edn.client import Client, ProblemError
from tests.brokers import Broker
from tests.connectors.probes import Message, new_probe, numbered, probe, watch
from tests.network import Network, Receiver, until
from tests.network.processes import free_port

SERVERS = 1
SERVER_OPTIONS = ["--retry-steps", "0.2"]


def subscribe(network: Network, topic: str, sink: dict[str, object]) -> dict[str, object]:
    network.http.put(f"/v1/topics/{topic}", json={"attributes": {"n": "integer"}}).raise_for_status()
    answer = network.http.post("/v1/subscriptions", json={"topic": topic, "sink": sink, "id": topic})
    assert answer.status_code == 201, answer.text
    found: dict[str, object] = answer.json()
    return found


def publish(network: Network, topic: str, count: int) -> list[str]:
    events = [{"n": number} for number in range(count)]
    answer = network.http.post(f"/v1/topics/{topic}/events", json=events)
    assert answer.status_code == 202, answer.text
    ids: list[str] = answer.json()["ids"]
    return ids


def test_a_broker_gets_the_body_and_the_signature_of_a_webhook(network: Network, broker: Broker) -> None:
    place = new_probe(broker)
    made = subscribe(network, place.place, {"url": place.sink})
    ids = publish(network, place.place, 3)
    found = []
    until("the messages", lambda: len(found.extend(place.read(0.5)) or found) > 0)
    seen = []
    for message in found:
        assert message.content_type == "application/json"
        assert message.id == message.headers["webhook-id"]
        # The library of Standard Webhooks verifies it like a POST.
        verified = Webhook(made["sink"]["secret"]).verify(message.body, message.headers)  # type: ignore[index]
        seen += [(one["event"]["id"], one["event"]["attributes"]["n"]) for one in verified["notifications"]]
    assert seen == list(zip(ids, range(3), strict=True))


def test_a_cloudevent_in_binary_mode_has_its_attributes_as_properties(
    network: Network, mosquitto: Broker
) -> None:
    place = new_probe(mosquitto)
    subscribe(network, place.place, {"url": place.sink, "format": "cloudevents-binary"})
    [id] = publish(network, place.place, 1)
    found = []
    until("the message", lambda: found.extend(place.read(0.5)) or found)
    [message] = found
    assert message.headers["id"] == id
    assert message.headers["type"] == f"edn.{place.place}"
    assert msgspec.json.decode(message.body) == {"n": 0}


def test_a_sink_without_a_stream_fails_visibly_and_is_delivered_later(
    network: Network, nats_server: Broker
) -> None:
    place = probe(nats_server, f"p{secrets.token_hex(4)}")
    subscribe(network, place.place, {"url": place.sink})
    publish(network, place.place, 1)

    def reasons() -> list[str]:
        answer = network.http.get(f"/v1/subscriptions/{place.place}/attempts").json()
        return [one["reason"] for one in answer["attempts"] if one["reason"]]

    assert until("a failed attempt", reasons)[0] == (
        f'no stream of the broker stores the subject "{place.place}.out"'
    )
    place.prepare()
    assert len(until("the message", lambda: place.read(0.5))) == 1


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("amqp://127.0.0.1/", "must name an exchange or a queue"),
        ("mqtt://127.0.0.1/a/+/b", "must name a topic without wildcards"),
        ("nats://127.0.0.1/a..b", "must name a subject without wildcards"),
        ("nats://127.0.0.1/a?what=1", "must have no options but stream"),
        ("amqp://10.0.0.1/?queue=q", "must be public"),
        ("mqtt://192.0.2.1/t", "must be public"),
        ("amqp://ann@127.0.0.1/?queue=q", "must have a password after the user; sink.credentials"),
        ("mqtt://ann:***@127.0.0.1/t", "must contain the password, got ***"),
        ("nats://:pw@127.0.0.1/t", "credentials.user must be 1 to 1024 characters"),
    ],
)
def test_a_bad_url_of_a_sink_is_refused_with_the_rule(network: Network, url: str, reason: str) -> None:
    network.http.put("/v1/topics/bad", json={"attributes": {"n": "integer"}}).raise_for_status()
    answer = network.http.post("/v1/subscriptions", json={"topic": "bad", "sink": {"url": url}})
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]


def test_messages_become_events_once_and_in_order(client: Client, receiver: Receiver, broker: Broker) -> None:
    place = new_probe(broker)
    seen = watch(client, receiver, place.place)
    source = client.create_source(place.place, place.source, id=place.place)
    until("the source to run", lambda: client.source(source.id).state == "running")
    place.publish(numbered(20))
    place.publish(numbered(20))  # the same messages again
    place.publish(numbered(1, start=20))
    until("the last event", lambda: ("m20", 20) in seen())
    assert seen() == [(f"m{n}", n) for n in range(21)]
    # The same request again is the same source; another URL for its id is refused.
    assert client.create_source(place.place, place.source, id=place.place).id == source.id
    with pytest.raises(ProblemError, match="exists with another topic or URL"):
        client.create_source(place.place, place.source + "?prefetch=7", id=place.place)
    client.delete_source(source.id)
    with pytest.raises(ProblemError, match="does not exist"):
        client.source(source.id)


def test_a_message_that_is_no_event_is_a_dead_letter_and_blocks_nothing(
    client: Client, receiver: Receiver, nats_server: Broker
) -> None:
    place = new_probe(nats_server)
    seen = watch(client, receiver, place.place)
    client.create_source(place.place, place.source, id=place.place)
    until("the source to run", lambda: client.source(place.place).state == "running")
    bad = {
        b"no json": "must be a JSON object",
        b"[1]": "must be a JSON object",
        b'{"n": "text"}': "n",
        b'{"n": 1': "must be a JSON object",
        b'"m": 2}': "must be a JSON object",
        b"\xff\x00": "must be a JSON object",
        b'{"n": 99, "$id": "m0"}': 'id "m0" is already used',
    }
    place.publish([*numbered(1), *map(Message, bad), *numbered(1, start=7)])
    until("the last event", lambda: ("m7", 7) in seen())
    assert seen() == [("m0", 0), ("m7", 7)]
    until("the dead letters", lambda: client.source(place.place).dead_letters == len(bad))
    letters = {one.body: one.reason for one in client.source_dead_letters(place.place)}
    for body, reason in bad.items():
        assert reason in letters[body.decode("utf-8", "replace")]
    found = client.source(place.place)
    assert (found.received, found.published, found.rejected) == (9, 2, 7)
    assert client.delete_source_dead_letters(place.place) == len(bad)
    assert client.source_dead_letters(place.place) == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1/x", "the source's URL must begin with one of amqp://"),
        ("amqp://127.0.0.1/", "the source's URL must name a queue"),
        ("mqtt://127.0.0.1/a/b#", 'the source\'s URL must have wildcards "+" and "#" as whole levels'),
        ("mqtt://127.0.0.1/$share/x", "must name a shared subscription as $share/group/filter"),
        ("nats://127.0.0.1/A.B", 'the source\'s URL must name a stream without "."'),
        ("nats://127.0.0.1/A?prefetch=0", "option prefetch must be an integer from 1"),
        ("amqp://10.0.0.1/?queue=q", "the source's address must be public"),
        ("nats:///A", "must name a host"),
        ("nats://[::1/A", "Invalid IPv6 URL"),
        ("garbage", "must begin with one of"),
    ],
)
def test_a_bad_url_of_a_source_is_refused_with_the_rule(client: Client, url: str, reason: str) -> None:
    client.create_topic("bad", {"n": "integer"})
    with pytest.raises(ProblemError) as refused:
        client.create_source("bad", url)
    assert refused.value.status == 422
    assert reason in str(refused.value)


def test_a_source_needs_its_topic(client: Client) -> None:
    with pytest.raises(ProblemError, match="does not exist"):
        client.create_source("nowhere", f"nats://127.0.0.1:{free_port()}/S")
