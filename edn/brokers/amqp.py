"""AMQP 0-9-1 (RabbitMQ) through aio-pika: publisher confirms, and acknowledgements by the consumer.

A message is published as *persistent* and, unless the URL says otherwise, as *mandatory*: a broker that can
route it to no queue returns it, instead of dropping it. An exchange that does not exist closes the channel,
so each exchange has a channel of its own, and the addresses of other exchanges are not disturbed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from edn.brokers.link import HEARTBEAT_SECONDS, Link, describe, library
from edn.brokers.messages import BrokerFailed, Incoming, Outgoing
from edn.formats.broker_url import BrokerUrl
from edn.runtime.ownership import owned

#: channels of one connection; the least recently opened is closed first
CHANNELS = 64


def _library() -> Any:
    return library("aio_pika", "amqp")


async def _connect(link: Link, url: BrokerUrl) -> Any:
    pika = _library()

    async def open(address: str) -> Any:
        context = await asyncio.to_thread(link.tls, url) if url.is_secure else None
        try:
            return await pika.connect(
                host=address,
                port=url.port,
                login=url.user or "guest",
                password=url.password or "guest",
                virtualhost=url.place,
                ssl=url.is_secure,
                ssl_context=context,
                heartbeat=HEARTBEAT_SECONDS,
                # With a certificate the broker takes the user from it.
                auth="plain" if url.certificate is None else "external",
                client_properties={"connection_name": "edn"},
            )
        except (*pika.exceptions.CONNECTION_EXCEPTIONS, EOFError) as error:
            raise _failure(error) from None

    return await link.connect(url, open)


def _failure(error: BaseException) -> BrokerFailed:
    exceptions = _library().exceptions
    if isinstance(error, exceptions.AuthenticationError | exceptions.ProbableAuthenticationError):
        return BrokerFailed(f"the broker refused the credentials: {error}")
    if isinstance(error, exceptions.PublishError):
        return BrokerFailed("the broker could route the message to no queue", refused=True)
    if isinstance(error, exceptions.DeliveryError):
        return BrokerFailed("the broker refused the message (nack)", refused=True)
    if isinstance(error, exceptions.ConnectionClosed | exceptions.ChannelInvalidStateError):
        return BrokerFailed("the broker closed the connection")
    if isinstance(error, exceptions.ChannelClosed):
        return BrokerFailed(f"the broker closed the channel: {error}", refused=True)
    if "Connection.OpenOk" in str(error):
        return BrokerFailed(
            "the broker refused the virtual host: it does not exist, or the user may not use it"
        )
    return BrokerFailed(describe(error.__cause__ if isinstance(error.__cause__, OSError) else error))


@owned("loop")
class AmqpPublisher:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        #: exchange → channel and exchange
        self._exchanges: dict[str, tuple[Any, Any]] = {}
        self._opening = asyncio.Lock()

    @classmethod
    async def open(cls, link: Link, url: BrokerUrl) -> AmqpPublisher:
        return cls(await _connect(link, url))

    @property
    def is_open(self) -> bool:
        return not self._connection.is_closed

    async def publish(self, url: BrokerUrl, message: Outgoing, seconds: float) -> None:
        pika = _library()
        queue = url.options.get("queue")
        routing_key = url.options.get("routing_key", "") if queue is None else queue
        name = "" if queue is not None else url.options.get("exchange", "")
        try:
            async with asyncio.timeout(seconds):
                exchange = await self._exchange(name)
                await exchange.publish(
                    pika.Message(
                        message.body,
                        content_type=message.content_type,
                        delivery_mode=pika.DeliveryMode.PERSISTENT,
                        message_id=message.id,
                        timestamp=message.timestamp,
                        app_id="edn",
                        headers={
                            **dict(message.headers),
                            **{f"cloudEvents:{name}": value for name, value in message.attributes},
                        },
                    ),
                    routing_key,
                    mandatory=url.is_set("mandatory", True),
                )
        except TimeoutError:
            raise BrokerFailed(f"the broker did not confirm the message in {seconds:g} s") from None
        except pika.exceptions.ChannelNotFoundEntity:
            raise BrokerFailed(f'the exchange "{name[:80]}" does not exist', refused=True) from None
        except pika.exceptions.CONNECTION_EXCEPTIONS as error:
            raise _failure(error) from None

    async def _exchange(self, name: str) -> Any:
        """Returns an exchange on its own channel."""
        async with self._opening:
            found = self._exchanges.get(name)
            if found is not None and not found[0].is_closed:
                return found[1]
            if len(self._exchanges) >= CHANNELS:
                oldest = next(iter(self._exchanges))
                await self._close_channel(self._exchanges.pop(oldest)[0])
            channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
            exchange = await channel.get_exchange(name, ensure=False) if name else channel.default_exchange
            self._exchanges.pop(name, None)
            self._exchanges[name] = (channel, exchange)
            return exchange

    @staticmethod
    async def _close_channel(channel: Any) -> None:
        with contextlib.suppress(Exception):
            await channel.close()

    async def close(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                await self._connection.close()


@owned("loop")
class AmqpConsumer:
    def __init__(self, connection: Any, channel: Any, queue: str, prefetch: int) -> None:
        self.dropped = 0
        self._connection = connection
        self._channel = channel
        self._queue = queue
        self._messages: asyncio.Queue[Any] = asyncio.Queue(prefetch)

    @classmethod
    async def open(cls, link: Link, url: BrokerUrl) -> AmqpConsumer:
        pika = _library()
        connection = await _connect(link, url)
        name = url.options["queue"]
        try:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=url.prefetch)
            queue = await channel.declare_queue(name, passive=True)
            consumer = cls(connection, channel, name, url.prefetch)
            await queue.consume(consumer._messages.put)
        except pika.exceptions.ChannelNotFoundEntity:
            await cls._close(connection)
            raise BrokerFailed(f'the queue "{name[:80]}" does not exist') from None
        except pika.exceptions.CONNECTION_EXCEPTIONS as error:
            await cls._close(connection)
            raise _failure(error) from None
        except BaseException:
            await cls._close(connection)
            raise
        return consumer

    async def receive(self, most: int, seconds: float) -> list[Incoming]:
        found = []
        if self._channel.is_closed:  # the broker delivers again whatever is in the queue
            raise BrokerFailed("the broker closed the connection")
        if self._messages.empty():
            try:
                async with asyncio.timeout(seconds):
                    found.append(await self._messages.get())
            except TimeoutError:
                await self._check()
                return []
        while len(found) < most and not self._messages.empty():
            found.append(self._messages.get_nowait())
        return [Incoming(message.body, message.message_id or None, message) for message in found]

    async def _check(self) -> None:
        """Raises unless the queue exists: a broker ends consumers of a deleted queue silently."""
        pika = _library()
        try:
            async with asyncio.timeout(5):
                await self._channel.declare_queue(self._queue, passive=True)
        except TimeoutError:
            raise BrokerFailed("the broker does not answer") from None
        except pika.exceptions.ChannelNotFoundEntity:
            raise BrokerFailed(f'the queue "{self._queue[:80]}" does not exist') from None
        except pika.exceptions.CONNECTION_EXCEPTIONS as error:
            raise _failure(error) from None

    async def acknowledge(self, messages: Sequence[Incoming]) -> None:
        try:
            await messages[-1].handle.ack(multiple=True)
        except _library().exceptions.CONNECTION_EXCEPTIONS as error:
            raise _failure(error) from None

    async def hold(self, messages: Sequence[Incoming]) -> None:
        return  # the broker waits as long as the connection lives

    async def close(self) -> None:
        await self._close(self._connection)

    @staticmethod
    async def _close(connection: Any) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                await connection.close()
