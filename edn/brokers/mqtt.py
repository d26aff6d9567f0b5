"""MQTT 5 through aiomqtt: QoS 1 in both directions.

The broker's acknowledgement (PUBACK) carries a reason, which aiomqtt drops; `_client_class` keeps it. A
consumer acknowledges a message itself, after the commit, so paho must not do it on receipt. *Receive Maximum*
limits the messages that the broker sends without acknowledgements. The session of a consumer outlives its
connection: the broker queues messages for it.

MQTT has no message ids. A user property with one of the names `ID_PROPERTIES` is taken for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Sequence
from typing import Any

from edn.brokers.link import CONNECT_SECONDS, HEARTBEAT_SECONDS, Link, describe, library
from edn.brokers.messages import BrokerFailed, Incoming, Outgoing
from edn.formats.broker_url import BrokerUrl
from edn.runtime.ownership import owned

#: user properties that identify a message, in order of precedence
ID_PROPERTIES = ("message-id", "webhook-id", "id")
#: seconds for which a broker keeps the session of a source that is not connected
SESSION_SECONDS = 7 * 86_400
#: reasons of an acknowledgement from which on it is a refusal
_REFUSED = 0x80


def _library() -> Any:
    return library("aiomqtt", "mqtt")


@functools.cache
def _client_class() -> Any:
    """Returns a client that keeps the reasons of acknowledgements, and acknowledges nothing by itself."""
    aiomqtt = _library()

    class Client(aiomqtt.Client):  # type: ignore[name-defined, misc]  # loaded when it is needed
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.pending_calls_threshold = 1 << 30  # it logs a warning per call above this
            self._client.manual_ack_set(True)
            #: packet → reason of its acknowledgement, if it was refused
            self.refusals: dict[int, str] = {}
            self.dropped = 0

        def _on_publish(self, client: Any, userdata: Any, mid: int, reason: Any, properties: Any) -> None:
            if reason.value >= _REFUSED:
                self.refusals[mid] = str(reason)
            super()._on_publish(client, userdata, mid, reason, properties)

        def _on_disconnect(self, client: Any, userdata: Any, *reasons: Any) -> None:
            if not self._connected.done():  # otherwise it waits for the timeout
                failure = aiomqtt.MqttError("the host closed the connection: it may be no broker of MQTT 5")
                self._connected.set_exception(failure)
            else:
                super()._on_disconnect(client, userdata, *reasons)

        def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
            if self._queue.full():
                self.dropped += 1  # only of QoS 0: of others the broker sends no more than it may
            else:
                super()._on_message(client, userdata, message)

        async def confirmed(self, topic: str, body: bytes, retain: bool, properties: Any) -> None:
            """Publishes with QoS 1; raises `BrokerFailed` if the broker refuses the message."""
            info = self._client.publish(topic, body, 1, retain, properties)
            if info.rc != 0:
                raise BrokerFailed("the broker closed the connection")
            if not info.is_published():
                event = asyncio.Event()
                self._pending_publishes[info.mid] = event
                acknowledged = asyncio.ensure_future(event.wait())
                try:
                    await asyncio.wait(
                        (acknowledged, self._disconnected), return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    self._pending_publishes.pop(info.mid, None)
                    acknowledged.cancel()
                if not event.is_set():
                    raise BrokerFailed("the broker closed the connection")
            refusal = self.refusals.pop(info.mid, None)
            if refusal is not None:
                raise BrokerFailed(f"the broker refused the message: {refusal}", refused=True)

        def acknowledge(self, mid: int) -> None:
            if self._client.ack(mid, 1) != 0:
                raise BrokerFailed("the broker closed the connection")

        @property
        def is_connected(self) -> bool:
            return not self._disconnected.done()

        def forget(self) -> None:
            """Closes the socket, and marks the reason of a lost connection as seen."""
            self._client._sock_close()
            if self._disconnected.done() and not self._disconnected.cancelled():
                self._disconnected.exception()

    return Client


async def _connect(link: Link, url: BrokerUrl, **settings: Any) -> Any:
    aiomqtt = _library()

    async def open(address: str) -> Any:
        context = await asyncio.to_thread(link.tls, url) if url.is_secure else None
        # Not in paho's thread: a host that does not answer, or not as a broker, must not occupy it.
        try:
            _, writer = await asyncio.open_connection(address, url.port, ssl=context)
        except OSError as error:
            raise BrokerFailed(describe(error)) from None
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        client = _client_class()(
            address,
            url.port,
            username=url.user,
            password=url.password,
            protocol=aiomqtt.ProtocolVersion.V5,
            timeout=CONNECT_SECONDS,
            keepalive=HEARTBEAT_SECONDS,
            tls_context=context,
            **settings,
        )
        try:
            async with link.connecting:
                await client.__aenter__()
        except BaseException as error:
            client.forget()
            if isinstance(error, aiomqtt.MqttError | OSError | ValueError):
                raise BrokerFailed(_reason(error)) from None
            raise
        return client

    return await link.connect(url, open)


def _reason(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if "Not authorized" in text or "Bad user name or password" in text:
        return f"the broker refused the credentials: {text}"
    return text


async def _close(client: Any) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(2):
            await client.__aexit__(None, None, None)
    client.forget()


def _properties(kind: str) -> Any:
    packets = library("paho.mqtt.packettypes", "mqtt").PacketTypes
    return library("paho.mqtt.properties", "mqtt").Properties(getattr(packets, kind))


@owned("loop")
class MqttPublisher:
    def __init__(self, client: Any) -> None:
        self._client = client

    @classmethod
    async def open(cls, link: Link, url: BrokerUrl) -> MqttPublisher:
        return cls(await _connect(link, url, clean_start=True))

    @property
    def is_open(self) -> bool:
        return bool(self._client.is_connected)

    async def publish(self, url: BrokerUrl, message: Outgoing, seconds: float) -> None:
        properties = _properties("PUBLISH")
        properties.ContentType = message.content_type
        properties.UserProperty = [*message.headers, *message.attributes]
        try:
            async with asyncio.timeout(seconds):
                await self._client.confirmed(url.place, message.body, url.is_set("retain", False), properties)
        except TimeoutError:
            raise BrokerFailed(f"the broker did not acknowledge the message in {seconds:g} s") from None
        except (ValueError, OSError) as error:  # a body above the limit of the protocol
            raise BrokerFailed(str(error), permanent=isinstance(error, ValueError)) from None

    async def close(self) -> None:
        await _close(self._client)


def _identifier(url: BrokerUrl, name: str) -> str:
    return url.options.get("client_id", name)


@owned("loop")
class MqttConsumer:
    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def dropped(self) -> int:
        return int(self._client.dropped)

    @dropped.setter
    def dropped(self, count: int) -> None:
        self._client.dropped = count

    @classmethod
    async def open(cls, link: Link, url: BrokerUrl, name: str) -> MqttConsumer:
        properties = _properties("CONNECT")
        properties.SessionExpiryInterval = int(url.options.get("session_expiry", SESSION_SECONDS))
        properties.ReceiveMaximum = min(url.prefetch, 65_535)
        client = await _connect(
            link,
            url,
            identifier=_identifier(url, name),
            clean_start=False,
            properties=properties,
            max_queued_incoming_messages=2 * url.prefetch,
        )
        options = library("paho.mqtt.subscribeoptions", "mqtt").SubscribeOptions(
            qos=1, retainHandling=1 if not url.place.startswith("$share/") else 2
        )
        try:
            codes = await client.subscribe(url.place, options=options)
        except (_library().MqttError, ValueError) as error:
            await _close(client)
            raise BrokerFailed(_reason(error)) from None
        except BaseException:
            await _close(client)
            raise
        if codes[0].value >= _REFUSED:
            await _close(client)
            raise BrokerFailed(f'the broker refused the filter "{url.place[:80]}": {codes[0]}')
        return cls(client)

    async def receive(self, most: int, seconds: float) -> list[Incoming]:
        if not self._client.is_connected:  # the broker delivers again whatever is in the queue
            raise BrokerFailed("the broker closed the connection")
        queue = self._client._queue
        if queue.empty():
            try:
                async with asyncio.timeout(seconds):
                    found = [await anext(self._client.messages)]
            except TimeoutError:
                return []
            except _library().MqttError as error:
                raise BrokerFailed(f"the broker closed the connection: {error}") from None
        else:
            found = []
        while len(found) < most and not queue.empty():
            found.append(queue.get_nowait())
        return [Incoming(message.payload, _id_of(message), message) for message in found]

    async def acknowledge(self, messages: Sequence[Incoming]) -> None:
        for message in messages:
            if message.handle.qos == 1:
                self._client.acknowledge(message.handle.mid)

    async def hold(self, messages: Sequence[Incoming]) -> None:
        return  # the broker waits as long as the connection lives

    async def close(self) -> None:
        await _close(self._client)


def _id_of(message: Any) -> str | None:
    given = dict(reversed(getattr(message.properties, "UserProperty", None) or []))
    return next((given[name] for name in ID_PROPERTIES if given.get(name)), None)


async def forget_session(link: Link, url: BrokerUrl, name: str) -> None:
    """Ends the session of a source: a clean start without an expiry replaces it."""
    await _close(await _connect(link, url, identifier=_identifier(url, name), clean_start=True))
