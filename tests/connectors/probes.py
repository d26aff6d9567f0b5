"""The other side of a broker, through the library of each: publishes messages, reads what was published."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import aio_pika
import aiomqtt
import nats
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edn.client import Client
from tests.brokers import Broker
from tests.network import Receiver


@dataclass(frozen=True, slots=True)
class Message:
    """What a broker delivered or shall deliver."""

    body: bytes
    id: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = ""


class Probe(Protocol):
    """A queue, topic or stream named `place`."""

    broker: Broker
    place: str
    sink: str
    source: str

    def prepare(self) -> None:
        """Create the place, so that it stores what is published from now on."""

    def publish(self, messages: Sequence[Message]) -> None: ...

    def read(self, idle: float = 1.0) -> list[Message]:
        """Return all messages that the place has, until none came for `idle` seconds."""


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 120))


class AmqpProbe:
    def __init__(self, broker: Broker, place: str) -> None:
        self.broker, self.place = broker, place
        self.sink = broker.url(f"%2F?exchange=&routing_key={place}")
        self.source = broker.url(f"%2F?queue={place}")

    async def _connect(self) -> Any:
        return await aio_pika.connect(self.broker.url("%2F", "guest:guest@"))

    def prepare(self) -> None:
        async def work() -> None:
            async with await self._connect() as connection:
                channel = await connection.channel()
                await channel.declare_queue(self.place, durable=True)

        run(work())

    def publish(self, messages: Sequence[Message]) -> None:
        async def work() -> None:
            async with await self._connect() as connection:
                exchange = (await connection.channel()).default_exchange
                sent = [
                    aio_pika.Message(
                        one.body,
                        message_id=one.id,
                        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                        headers=dict(one.headers),
                    )
                    for one in messages
                ]
                for start in range(0, len(sent), 100):
                    part = sent[start : start + 100]
                    await asyncio.gather(*(exchange.publish(one, self.place) for one in part))

        run(work())

    def read(self, idle: float = 1.0) -> list[Message]:
        async def work() -> list[Message]:
            found = []
            async with await self._connect() as connection:
                channel = await connection.channel()
                queue = await channel.declare_queue(self.place, passive=True)
                while (got := await _next(queue, idle)) is not None:
                    await got.ack()
                    headers = {str(name): str(value) for name, value in got.headers.items()}
                    found.append(Message(got.body, got.message_id, headers, got.content_type or ""))
            return found

        found: list[Message] = run(work())
        return found


async def _next(queue: Any, idle: float) -> Any:
    """Return the next message of a queue, None if it stays empty."""
    for _ in range(max(1, int(idle / 0.1))):
        got = await queue.get(fail=False)
        if got is not None:
            return got
        await asyncio.sleep(0.1)
    return None


class MqttProbe:
    def __init__(self, broker: Broker, place: str) -> None:
        self.broker, self.place = broker, place
        self.sink = broker.url(place)
        self.source = broker.url(place)

    def _client(self, **more: Any) -> Any:
        protocol = aiomqtt.ProtocolVersion.V5
        return aiomqtt.Client("127.0.0.1", self.broker.port, protocol=protocol, **more)

    def _reader(self) -> Any:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600
        identifier = f"probe-{self.place.replace('/', '-')}"
        return self._client(identifier=identifier, clean_start=False, properties=properties)

    def prepare(self) -> None:
        async def work() -> None:
            async with self._reader() as client:
                await client.subscribe(self.place, qos=1)

        run(work())

    def publish(self, messages: Sequence[Message]) -> None:
        async def work() -> None:
            async with self._client(max_inflight_messages=20) as client:
                client.pending_calls_threshold = 1000
                for start in range(0, len(messages), 100):
                    part = messages[start : start + 100]
                    await asyncio.gather(*(self._publish(client, one) for one in part))

        run(work())

    async def _publish(self, client: Any, message: Message) -> None:
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = [
            *([("message-id", message.id)] if message.id else []),
            *message.headers.items(),
        ]
        await client.publish(self.place, message.body, qos=1, properties=properties, timeout=60)

    def read(self, idle: float = 1.0) -> list[Message]:
        async def work() -> list[Message]:
            found = []
            async with self._reader() as client:
                with contextlib.suppress(TimeoutError):
                    while True:
                        got = await asyncio.wait_for(anext(client.messages), idle)
                        headers = dict(getattr(got.properties, "UserProperty", []))
                        kind = getattr(got.properties, "ContentType", "")
                        found.append(Message(got.payload, headers.get("webhook-id"), headers, kind))
            return found

        found: list[Message] = run(work())
        return found


class NatsProbe:
    def __init__(self, broker: Broker, place: str) -> None:
        """Stream PLACE with the subjects place.>"""
        self.broker, self.place = broker, place
        self.sink = broker.url(f"{place}.out")
        self.source = broker.url(place.upper())
        self._read = 0

    async def _connect(self) -> Any:
        return await nats.connect(self.broker.url())

    def prepare(self) -> None:
        async def work() -> None:
            client = await self._connect()
            await client.jetstream().add_stream(name=self.place.upper(), subjects=[f"{self.place}.>"])
            await client.close()

        run(work())

    def publish(self, messages: Sequence[Message]) -> None:
        async def work() -> None:
            client = await self._connect()
            stream = client.jetstream()
            for start in range(0, len(messages), 100):
                part = messages[start : start + 100]
                await asyncio.gather(*(self._publish(stream, one) for one in part))
            await client.close()

        run(work())

    async def _publish(self, stream: Any, message: Message) -> None:
        headers = {**message.headers, **({"Nats-Msg-Id": message.id} if message.id else {})}
        await stream.publish(f"{self.place}.in", message.body, headers=headers or None, timeout=30)

    def read(self, idle: float = 1.0) -> list[Message]:
        async def work() -> list[Message]:
            found = []
            client = await self._connect()
            stream = client.jetstream()
            reader = f"probe-{self.place}"
            with contextlib.suppress(NotFoundError):
                await stream.delete_consumer(self.place.upper(), reader)
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=self._read + 1
            )
            pull = await stream.pull_subscribe(
                f"{self.place}.out", reader, stream=self.place.upper(), config=config
            )
            with contextlib.suppress(TimeoutError, nats.errors.TimeoutError):
                while True:
                    for got in await pull.fetch(100, timeout=idle):
                        await got.ack()
                        headers = dict(got.headers or {})
                        kind = headers.get("content-type", "")
                        found.append(Message(got.data, headers.get("Nats-Msg-Id"), headers, kind))
                        self._read = got.metadata.sequence.stream
            await client.close()
            return found

        found: list[Message] = run(work())
        return found


PROBES = {"amqp": AmqpProbe, "mqtt": MqttProbe, "nats": NatsProbe}


def probe(broker: Broker, place: str) -> Probe:
    made: Probe = PROBES[broker.scheme](broker, place)
    return made


def new_probe(broker: Broker) -> Probe:
    made = probe(broker, f"p{secrets.token_hex(4)}")
    made.prepare()
    return made


def watch(client: Client, receiver: Receiver, topic: str) -> Any:
    """A topic and a subscription; returns a function that returns the (id, n) of delivered events."""
    client.create_topic(topic, {"n": "integer"})
    client.subscribe(topic, url=receiver.address(topic))

    def seen() -> list[tuple[str, int]]:
        return [
            (one["event"]["id"], one["event"]["attributes"]["n"])
            for delivery in receiver.deliveries()
            if delivery.path == f"/{topic}"
            for one in delivery.body["notifications"]
        ]

    return seen


def numbered(count: int, *, start: int = 0) -> list[Message]:
    return [Message(b'{"n": %d}' % n, f"m{n}") for n in range(start, start + count)]
