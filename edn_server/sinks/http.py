"""The sink of http and https: one POST, over a connection to an address that was checked.

The name is resolved here, every address that it has is checked, and the connection goes to one of these
addresses: nothing is resolved twice, so no name can point elsewhere in between. Host header and TLS name stay
the sink's. No proxy and no redirect is followed. `resolver` looks names up, so that a name server that does
not answer delays no other name.

A POST may be repeated on a new connection (`edn.http.client`): it has the same webhook-id.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from functools import partial

import certifi

from edn import __version__
from edn.errors import InvalidSink
from edn.formats import trace_context
from edn.http import sink_policy
from edn.http.client import ExchangeFailed, Headers, HttpClient, Limits
from edn_server.config import Settings
from edn_server.sinks.base import ANSWER_BYTES, Answer, Message
from edn_server.sinks.resolver import Resolver, Unresolved

CONNECT_SECONDS = 5.0
#: idle connections that are kept
MOST_IDLE = 256
#: of an answer no more is read; a longer one costs its connection
READ_BYTES = 64 << 10

_AGENT = (("user-agent", f"edn/{__version__}"), ("accept", "*/*"))


class HttpSink:
    def __init__(self, settings: Settings, resolver: Resolver | None = None) -> None:
        """`resolver`: shared with other sinks; without it, the sink has one of its own."""
        self._resolver = resolver or Resolver(settings.nameservers)
        self._own_resolver = resolver is None
        self._allow_loopback = settings.allow_loopback_sinks
        self._seconds = settings.attempt_seconds
        self._client = HttpClient(
            Limits(read=READ_BYTES, returned=ANSWER_BYTES),
            connect_seconds=CONNECT_SECONDS,
            most_idle=min(MOST_IDLE, settings.concurrent_posts),
            tls=ssl.create_default_context(cafile=certifi.where()),
        )

    async def close(self) -> None:
        self._client.close()
        if self._own_resolver:
            await self._resolver.close()

    async def send(self, message: Message) -> Answer:
        headers = [
            *_AGENT,
            ("content-type", message.content_type),
            ("webhook-id", message.webhook_id),
            ("webhook-timestamp", str(message.timestamp)),
        ]
        if message.signature is not None:
            headers.append(("webhook-signature", message.signature))
        headers += trace_context.headers(message.trace)
        headers += message.headers
        return await self._request("POST", message.url, message.body, headers, self._seconds, message.tenant)

    async def ask(self, url: str, headers: Headers, seconds: float, tenant: str = "") -> Answer:
        """Send an OPTIONS request; `Answer.allowed` has the sink's consent."""
        return await self._request("OPTIONS", url, b"", [*_AGENT, *headers], seconds, tenant)

    async def _request(
        self, method: str, url: str, body: bytes, headers: Headers, seconds: float, tenant: str
    ) -> Answer:
        resolve = partial(self._resolve, tenant=tenant)
        try:
            answer = await self._client.request(method, url, body, headers, seconds=seconds, resolve=resolve)
        except InvalidSink as error:
            return Answer(None, reason=error.detail)
        except (ExchangeFailed, OSError, ValueError) as error:
            return Answer(None, reason=str(error) or type(error).__name__)
        retry_after = answer.headers.get(b"retry-after")
        return Answer(
            answer.status,
            None if retry_after is None else retry_after.decode("latin-1"),
            None if answer.status < 300 else f"it answered {answer.status}",
            answer.body.decode("utf-8", "replace"),
            allowed={
                name.decode("latin-1"): value.decode("latin-1").strip()
                for name, value in answer.headers.items()
                if name.startswith(b"webhook-allowed-")
            },
        )

    async def _resolve(self, host: str, tenant: str) -> Sequence[str]:
        """The addresses of a host; raises `InvalidSink` if any of them is forbidden."""
        literal = sink_policy.literal_address(host)
        if literal is not None:
            addresses: Sequence[str] = [str(literal)]
        else:
            try:
                addresses = await self._resolver.resolve(host, tenant)
            except Unresolved as error:
                raise ExchangeFailed(str(error)) from None
        for address in addresses:
            reason = sink_policy.refusal(address, allow_loopback=self._allow_loopback)
            if reason is not None:
                raise InvalidSink(f"{host}: {reason}")
        return addresses
