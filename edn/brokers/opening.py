"""Finds the module of a broker by the URL, and opens publishers and consumers."""

from __future__ import annotations

from edn.brokers.link import Link
from edn.brokers.messages import Consumer, Publisher
from edn.formats.broker_url import BrokerUrl


async def open_publisher(link: Link, url: BrokerUrl) -> Publisher:
    """Connects to the broker of a sink; raises `BrokerFailed`."""
    if url.kind == "amqp":
        from edn.brokers.amqp import AmqpPublisher

        return await AmqpPublisher.open(link, url)
    if url.kind == "mqtt":
        from edn.brokers.mqtt import MqttPublisher

        return await MqttPublisher.open(link, url)
    from edn.brokers.nats import NatsPublisher

    return await NatsPublisher.open(link, url)


async def open_consumer(link: Link, url: BrokerUrl, name: str) -> Consumer:
    """Begins to consume; `name` identifies the source at the broker, also after a restart."""
    if url.kind == "amqp":
        from edn.brokers.amqp import AmqpConsumer

        return await AmqpConsumer.open(link, url)
    if url.kind == "mqtt":
        from edn.brokers.mqtt import MqttConsumer

        return await MqttConsumer.open(link, url, name)
    from edn.brokers.nats import NatsConsumer

    return await NatsConsumer.open(link, url, name)


async def forget(link: Link, url: BrokerUrl, name: str) -> None:
    """Deletes what a source has created at the broker: an MQTT session, a JetStream consumer.

    Raises `BrokerFailed`.
    """
    if url.kind == "mqtt":
        from edn.brokers.mqtt import forget_session

        await forget_session(link, url, name)
    elif url.kind == "nats":
        from edn.brokers.nats import forget_consumer

        await forget_consumer(link, url, name)
