"""NATS JetStream through nats-py: acknowledged publishes, and a durable pull consumer.

`Nats-Msg-Id` is the id of a message: the stream drops a repetition within its window of duplicates. A message
without one is identified by its stream and sequence. Sequences begin again if the stream is created again, so
its creation time is part of the id.

nats-py reconnects by itself to servers that the broker names, without any check. So a connection here never
reconnects: the next one is opened like the first. A URL with the scheme `tls` refuses a server without TLS,
which nats-py would accept.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from edn.brokers.link import CONNECT_SECONDS, HEARTBEAT_SECONDS, Link, describe, library
from edn.brokers.messages import BrokerFailed, Incoming, Outgoing
from edn.formats.broker_url import BrokerUrl
from edn.runtime.ownership import owned

#: seconds until the broker delivers a message again that was not acknowledged
ACK_SECONDS = 30.0
#: seconds of one request for messages
_FETCH_SECONDS = 2.0
#: seconds of a request for further messages that are there already
_MORE_SECONDS = 0.05
_MESSAGE_ID = "Nats-Msg-Id"


def _library() -> Any:
    library("nats", "nats")
    return library("nats.errors", "nats")


@functools.cache
def _client_class() -> Any:
    errors = _library()

    class Client(library("nats.aio.client", "nats").Client):  # type: ignore[misc]  # loaded when needed
        requires_tls = False

        async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
            if self.requires_tls and initial_connection and not info.get("tls_required"):
                raise errors.Error("the server does not offer TLS")
            info.pop("connect_urls", None)
            await super()._process_info(info, initial_connection)

    return Client


async def _connect(link: Link, url: BrokerUrl) -> Any:
    errors = _library()

    async def open(address: str) -> Any:
        context = await asyncio.to_thread(link.tls, url) if url.is_secure else None
        client = _client_class()()
        client.requires_tls = url.is_secure
        host = f"[{address}]" if ":" in address else address
        credentials: dict[str, str] = {}
        failures: list[BaseException] = []

        async def keep(error: BaseException) -> None:
            failures.append(error)

        if url.user is not None:
            credentials = (
                {"token": url.user} if url.password is None else {"user": url.user, "password": url.password}
            )
        try:
            await client.connect(
                [f"{url.scheme}://{host}:{url.port}"],
                name="edn",
                allow_reconnect=False,
                connect_timeout=int(CONNECT_SECONDS),
                ping_interval=HEARTBEAT_SECONDS,
                tls=context,
                tls_hostname=url.host,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                error_cb=keep,
                **credentials,
            )
        except BaseException as error:
            # It waits for the other side of a connection whose TLS has failed.
            await _close(client, seconds=0.2)
            if isinstance(error, errors.Error | OSError):
                raise BrokerFailed(_reason(failures[-1] if failures else error)) from None
            raise
        return client

    return await link.connect(url, open)


def _reason(error: BaseException) -> str:
    text = describe(error)
    if "Authorization" in text:
        return "the broker refused the credentials"
    return text.removeprefix("nats: ")


@owned("loop")
class NatsPublisher:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._stream = client.jetstream()

    @classmethod
    async def open(cls, link: Link, url: BrokerUrl) -> NatsPublisher:
        return cls(await _connect(link, url))

    @property
    def is_open(self) -> bool:
        return bool(self._client.is_connected)

    async def publish(self, url: BrokerUrl, message: Outgoing, seconds: float) -> None:
        errors = _library()
        no_stream = library("nats.js.errors", "nats").NoStreamResponseError
        headers = {
            _MESSAGE_ID: message.id,
            "content-type": message.content_type,
            **dict(message.headers),
            **{
                f"ce-{name}": quote(value, safe=" !#$&'()*+,/:;=?@[]-._~")
                for name, value in message.attributes
            },
        }
        try:
            async with asyncio.timeout(seconds):
                await self._stream.publish(
                    url.place,
                    message.body,
                    timeout=seconds,
                    stream=url.options.get("stream"),
                    headers=headers,
                )
        except (TimeoutError, errors.TimeoutError):
            reason = f"the broker did not acknowledge the message in {seconds:g} s"
            raise BrokerFailed(reason if self.is_open else "the broker closed the connection") from None
        except no_stream:
            raise BrokerFailed(
                f'no stream of the broker stores the subject "{url.place[:80]}"', refused=True
            ) from None
        except errors.MaxPayloadError:
            most = self._client.max_payload
            raise BrokerFailed(
                f"the message must have at most {most} bytes, the broker's limit, got {len(message.body)}",
                permanent=True,
            ) from None
        except library("nats.js.errors", "nats").Error as error:
            raise BrokerFailed(f"the broker refused the message: {_reason(error)}", refused=True) from None
        except (errors.Error, OSError, ValueError) as error:
            raise BrokerFailed(_reason(error)) from None

    async def close(self) -> None:
        await _close(self._client)


async def _close(client: Any, seconds: float = 2.0) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(seconds):
            await client.close()


@owned("loop")
class NatsConsumer:
    def __init__(self, client: Any, subscription: Any, created: str) -> None:
        self.dropped = 0
        self._client = client
        self._subscription = subscription
        self._created = created

    @classmethod
    async def open(cls, link: Link, url: BrokerUrl, name: str) -> NatsConsumer:
        errors = _library()
        missing = library("nats.js.errors", "nats").NotFoundError
        client = await _connect(link, url)
        stream, given = url.place, url.options.get("consumer")
        try:
            context = client.jetstream(timeout=CONNECT_SECONDS)
            try:
                info = await context.stream_info(stream)
            except missing:
                raise BrokerFailed(f'the stream "{stream[:80]}" does not exist') from None
            try:
                found = await context.consumer_info(stream, given or name)
                if found.config.deliver_subject:
                    raise BrokerFailed(f'the consumer "{given}" must be a pull consumer, got a push consumer')
            except missing:
                if given is not None:
                    raise BrokerFailed(f'the stream "{stream[:80]}" has no consumer "{given[:80]}"') from None
                await context.add_consumer(stream, _config(url, name))
            subscription = await context.pull_subscribe_bind(given or name, stream=stream)
        except BrokerFailed:
            await _close(client)
            raise
        except (errors.Error, OSError, TimeoutError) as error:
            await _close(client)
            raise BrokerFailed(_reason(error)) from None
        except BaseException:
            await _close(client)
            raise
        return cls(client, subscription, str(info.created or ""))

    async def receive(self, most: int, seconds: float) -> list[Incoming]:
        errors = _library()
        if not self._client.is_connected:
            raise BrokerFailed("the broker closed the connection")
        try:
            # A request for many waits for the last of them, so ask for one first, and then for what is there.
            found = await self._subscription.fetch(1, timeout=min(seconds, _FETCH_SECONDS))
            if most > 1:
                with contextlib.suppress(TimeoutError, errors.TimeoutError):
                    found += await self._subscription.fetch(most - 1, timeout=_MORE_SECONDS)
        except (TimeoutError, errors.TimeoutError):
            await self._check()
            return []
        except (errors.Error, OSError) as error:
            raise BrokerFailed(_reason(error)) from None
        return [Incoming(message.data, self._id_of(message), message) for message in found]

    async def _check(self) -> None:
        """Raises unless the consumer exists: requests to a deleted one are not answered."""
        errors = _library()
        try:
            await self._subscription.consumer_info()
        except library("nats.js.errors", "nats").NotFoundError:
            raise BrokerFailed("the consumer or its stream was deleted") from None
        except (errors.Error, OSError, TimeoutError) as error:
            raise BrokerFailed(_reason(error)) from None

    def _id_of(self, message: Any) -> str:
        given = (message.headers or {}).get(_MESSAGE_ID)
        if given:
            return str(given)
        metadata = message.metadata
        return f"{metadata.stream}/{self._created}/{metadata.sequence.stream}"

    async def acknowledge(self, messages: Sequence[Incoming]) -> None:
        try:
            for message in messages:
                await message.handle.ack()
            await self._client.flush(timeout=5)
        except (_library().Error, OSError, TimeoutError) as error:
            raise BrokerFailed(_reason(error)) from None

    async def hold(self, messages: Sequence[Incoming]) -> None:
        with contextlib.suppress(_library().Error, OSError):
            for message in messages:
                await message.handle.in_progress()

    async def close(self) -> None:
        await _close(self._client)


def _config(url: BrokerUrl, name: str) -> Any:
    api = library("nats.js.api", "nats")
    return api.ConsumerConfig(
        durable_name=name,
        description="a source of edn",
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=ACK_SECONDS,
        max_ack_pending=url.prefetch,
        filter_subject=url.options.get("subject"),
        deliver_policy=(
            api.DeliverPolicy.NEW if url.options.get("deliver") == "new" else api.DeliverPolicy.ALL
        ),
    )


async def forget_consumer(link: Link, url: BrokerUrl, name: str) -> None:
    """Deletes the consumer of a source, unless the source was given one that exists."""
    if url.options.get("consumer") is not None:
        return
    errors = _library()
    client = await _connect(link, url)
    try:
        await client.jetstream(timeout=CONNECT_SECONDS).delete_consumer(url.place, name)
    except library("nats.js.errors", "nats").NotFoundError:
        pass
    except (errors.Error, OSError, TimeoutError) as error:
        raise BrokerFailed(_reason(error)) from None
    finally:
        await _close(client)
