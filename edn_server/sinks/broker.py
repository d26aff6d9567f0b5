"""The sink of message brokers: publishes notifications to AMQP, MQTT and NATS JetStream.

A delivery batch is one message with the body of a webhook. Its headers or properties are those of a webhook,
and the webhook-id is the message's id, by which the broker (NATS) or its consumers recognize a repetition. A
batch counts as delivered once the broker has confirmed the message.

The addresses of a tenant at one broker with equal credentials share a connection, which is opened by the
first of them and opened again after a failure. Addresses of another broker wait for nobody.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import OrderedDict
from dataclasses import dataclass

from edn.brokers.link import Link
from edn.brokers.messages import BrokerFailed, Outgoing, Publisher
from edn.brokers.opening import open_publisher
from edn.errors import EdnError, InvalidSink
from edn.formats import broker_url, cloudevents, trace_context
from edn.formats.broker_url import BrokerUrl
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.sinks.base import Answer, Message
from edn_server.sinks.resolver import Resolver

#: prefix of context attributes of CloudEvents in headers of HTTP
_ATTRIBUTE = "ce-"
#: connections of this server; the least recently used is closed first
CONNECTIONS = 512
#: seconds after which an unused connection is closed
IDLE_SECONDS = 600.0

_parse = functools.lru_cache(maxsize=1 << 12)(functools.partial(broker_url.parse, role="sink"))


@dataclass(slots=True)
class _Connection:
    publisher: Publisher
    used: float


@owned("loop")
class BrokerSink:
    def __init__(self, settings: Settings, resolver: Resolver | None = None) -> None:
        """`resolver` may be shared with other sinks."""
        self._settings = settings
        self._resolver = resolver or Resolver(settings.nameservers)
        self._own_resolver = resolver is None
        #: tenant and broker → connection, the least recently used first
        self._open: OrderedDict[tuple[object, ...], _Connection] = OrderedDict()
        self._opening: dict[tuple[object, ...], asyncio.Task[Publisher]] = {}

    async def send(self, message: Message) -> Answer:
        profile = message.profile
        if profile is not None and profile.problem:
            return Answer(None, reason=profile.problem)
        try:
            url = _parse(message.url)
            if profile is not None and profile.credentials is not None:
                url = broker_url.with_credentials(url, profile.credentials)
            outgoing = compose(message)
        except InvalidSink as error:
            return Answer(None, reason=error.detail, permanent=True)
        key = (message.tenant, *url.broker)
        seconds = self._settings.attempt_seconds
        if profile is not None and profile.seconds is not None:
            seconds = profile.seconds
        try:
            async with asyncio.timeout(seconds):
                publisher = await self._publisher(key, url, message.tenant)
                await publisher.publish(url, outgoing, seconds)
        except TimeoutError:
            self._discard(key)
            return Answer(None, reason=f"the broker did not answer in {seconds:g} s")
        except BrokerFailed as failure:
            if not failure.is_refused:
                self._discard(key)
            return Answer(None, reason=failure.reason, permanent=failure.is_permanent)
        except EdnError as error:  # a host that the policy refuses
            return Answer(None, reason=error.detail)
        return Answer(200)

    async def close(self) -> None:
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        open, self._open = self._open, OrderedDict()
        await asyncio.gather(*(one.publisher.close() for one in open.values()), return_exceptions=True)
        if self._own_resolver:
            await self._resolver.close()

    async def _publisher(self, key: tuple[object, ...], url: BrokerUrl, tenant: str) -> Publisher:
        """Returns the open connection of a broker; attempts that need it share the one that is opened."""
        found = self._open.get(key)
        if found is not None and found.publisher.is_open:
            found.used = time.monotonic()
            self._open.move_to_end(key)
            return found.publisher
        task = self._opening.get(key)
        if task is None:
            self._discard(key)
            task = asyncio.create_task(self._connect(key, url, tenant), name="broker")
            self._opening[key] = task
            task.add_done_callback(functools.partial(self._opened, key))
        return await asyncio.shield(task)

    async def _connect(self, key: tuple[object, ...], url: BrokerUrl, tenant: str) -> Publisher:
        resolve = functools.partial(self._resolver.resolve, tenant=tenant)
        link = Link(
            resolve,
            self._settings.allow_loopback_sinks,
            self._settings.broker_ca_file,
            self._settings.sink_networks,
        )
        publisher = await open_publisher(link, url)
        self._open[key] = _Connection(publisher, time.monotonic())
        self._close_unused()
        return publisher

    def _opened(self, key: tuple[object, ...], task: asyncio.Task[Publisher]) -> None:
        self._opening.pop(key, None)
        if not task.cancelled():
            task.exception()  # nobody may wait for it any more

    def _close_unused(self) -> None:
        now = time.monotonic()
        for key, connection in list(self._open.items()):
            if len(self._open) <= CONNECTIONS and now - connection.used < IDLE_SECONDS:
                return
            self._discard(key)

    def _discard(self, key: tuple[object, ...]) -> None:
        connection = self._open.pop(key, None)
        if connection is not None:
            asyncio.get_running_loop().create_task(connection.publisher.close(), name="broker")


def compose(message: Message) -> Outgoing:
    """Composes the message to a broker; only time and signature differ between attempts."""
    headers = [("webhook-id", message.webhook_id), ("webhook-timestamp", str(message.timestamp))]
    if (signature := message.signature) is not None:
        headers.append(("webhook-signature", signature))
    headers += trace_context.headers(message.trace)
    attributes = []
    for name, value in message.headers:
        if name.startswith(_ATTRIBUTE):
            decoded = cloudevents.header_value(value.encode("latin-1"), name)
            attributes.append((name.removeprefix(_ATTRIBUTE), decoded))
        else:
            headers.append((name, value))
    return Outgoing(
        message.webhook_id,
        message.body,
        message.content_type,
        message.timestamp,
        tuple(headers),
        tuple(attributes),
    )
