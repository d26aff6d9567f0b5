"""Brokers that refuse, hang, or lose what a sink or source uses."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Iterator
from typing import Any

import aio_pika
import msgspec
import pytest

from edn.client import Client
from tests.brokers import Broker, Nats, RabbitMQ, running
from tests.connectors.probes import AmqpProbe, Message, new_probe, numbered, probe, watch
from tests.network import Network, Receiver, until

SERVERS = 1
SERVER_OPTIONS = ["--retry-steps", "0.2", "--attempt-seconds", "3"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Broker]:
    with running(RabbitMQ) as broker:
        yield broker


def reasons(network: Network, subscription: str) -> list[str]:
    answer = network.http.get(f"/v1/subscriptions/{subscription}/attempts").json()
    return [one["reason"] for one in answer["attempts"] if one["reason"]]


@pytest.mark.parametrize(
    ("place", "userinfo", "reason"),
    [
        ("%2F?queue=none", "", "the broker could route the message to no queue"),
        ("%2F?exchange=none&routing_key=k", "", 'the exchange "none" does not exist'),
        ("none?queue=q", "", "the broker refused the virtual host"),
        ("%2F?queue=q", "guest:wrong@", "the broker refused the credentials"),
    ],
)
def test_a_sink_at_rabbitmq_says_what_is_wrong(
    network: Network, client: Client, rabbit: Broker, place: str, userinfo: str, reason: str
) -> None:
    topic = f"p{secrets.token_hex(4)}"
    client.create_topic(topic, {"n": "integer"})
    client.subscribe(topic, url=rabbit.url(place, userinfo), id=topic)
    client.publish(topic, {"n": 1})
    assert reason in until("the reason", lambda: reasons(network, topic))[0]
    client.unsubscribe(topic)


def test_a_missing_exchange_does_not_disturb_the_sinks_beside_it(
    network: Network, client: Client, rabbit: Broker
) -> None:
    """They share a connection, and the broker closes the channel of the wrong one."""
    place = new_probe(rabbit)
    client.create_topic(place.place, {"n": "integer"})
    client.subscribe(place.place, url=rabbit.url("%2F?exchange=none&routing_key=k"), id="wrong")
    client.subscribe(place.place, url=place.sink, id="right")
    for n in range(20):
        client.publish(place.place, {"n": n})
    found: list[Message] = []
    events: list[int] = []

    def is_complete() -> bool:
        found.extend(place.read(0.5))
        events[:] = [
            one["event"]["attributes"]["n"]
            for message in found
            for one in msgspec.json.decode(message.body)["notifications"]
        ]
        return len(events) >= 20

    until("the messages", is_complete)
    assert events == list(range(20))
    assert reasons(network, "right") == []
    client.unsubscribe("wrong")


def test_an_unroutable_message_is_confirmed_if_the_url_says_so(
    network: Network, client: Client, rabbit: Broker
) -> None:
    topic = f"p{secrets.token_hex(4)}"
    client.create_topic(topic, {"n": "integer"})
    client.subscribe(topic, url=rabbit.url("%2F?queue=none&mandatory=false"), id=topic)
    client.publish(topic, {"n": 1})

    def outcomes() -> list[str]:
        answer = network.http.get(f"/v1/subscriptions/{topic}/attempts").json()
        return [one["outcome"] for one in answer["attempts"]]

    assert until("the attempt", outcomes) == ["delivered"]


def test_a_source_finds_its_queue_again_after_it_was_deleted(
    client: Client, receiver: Receiver, rabbit: Broker
) -> None:
    place = new_probe(rabbit)
    assert isinstance(place, AmqpProbe)
    seen = watch(client, receiver, place.place)
    client.create_source(place.place, place.source, id=place.place)
    place.publish(numbered(2))
    until("the events", lambda: len(seen()) == 2)

    async def delete() -> None:
        async with await aio_pika.connect(rabbit.url("%2F", "guest:guest@")) as connection:
            await (await connection.channel()).queue_delete(place.place)

    asyncio.run(delete())
    until("the error", lambda: "does not exist" in str(client.source(place.place).last_error), seconds=60)
    place.prepare()
    place.publish(numbered(2, start=2))
    until("the others", lambda: len(seen()) == 4, seconds=60)


def test_a_broker_that_hangs_delays_only_its_own_sinks(
    network: Network, client: Client, receiver: Receiver
) -> None:
    with running(Nats) as broker:
        place = probe(broker, f"p{secrets.token_hex(4)}")
        place.prepare()
        seen = watch(client, receiver, place.place)
        client.subscribe(place.place, url=place.sink, id="hangs")
        client.publish(place.place, {"n": 0})
        until("the message", lambda: place.read(0.5))
        pid = _pid_of(broker)
        os.kill(pid, signal.SIGSTOP)
        try:
            for n in range(1, 6):
                client.publish(place.place, {"n": n})
            until("the webhook's events", lambda: len(seen()) == 6)
            assert until("the reason", lambda: reasons(network, "hangs"), seconds=20)
        finally:
            os.kill(pid, signal.SIGCONT)
        until("the messages afterwards", lambda: place.read(0.5), seconds=60)
        client.unsubscribe("hangs")


def _pid_of(broker: Any) -> int:
    pid: int = broker._process.pid
    return pid
