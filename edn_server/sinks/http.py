"""The sink of http and https URLs: one POST to an IP address that was checked.

The sink resolves the name, checks every IP address, and connects to one of them. Nothing is resolved twice,
so a name cannot point elsewhere in between. Host header and TLS name stay those of the URL. Redirects and
proxies are not followed. `resolver` keeps a silent name server from delaying other names.

A POST may be repeated on a new connection (`edn.http.client`), under the same webhook-id.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial

import certifi

from edn import __version__
from edn.errors import InvalidSink
from edn.formats import trace_context
from edn.http import sink_policy
from edn.http.client import Headers, HttpClient, header_lines
from edn.http.exchange import ExchangeFailed, HttpAnswer, Limits
from edn.http.request_limits import descriptor_limit
from edn_server.config import Settings
from edn_server.sinks.base import ANSWER_BYTES, Answer, ImmediateSink, Message
from edn_server.sinks.resolver import Resolver, Unresolved

CONNECT_SECONDS = 5.0
#: share of the descriptors that idle connections may use: every address has one of its own, if possible
IDLE_SHARE = 0.5
#: limit of an answer's body; the connection of a longer answer is closed
READ_BYTES = 64 << 10

AGENT = f"user-agent: edn/{__version__}\r\naccept: */*\r\n"


class HttpSink(ImmediateSink):
    def __init__(self, settings: Settings, resolver: Resolver | None = None) -> None:
        """`resolver` may be shared with other sinks."""
        self._resolver = resolver or Resolver(settings.nameservers)
        self._own_resolver = resolver is None
        self._allow_loopback = settings.allow_loopback_sinks
        self._seconds = settings.attempt_seconds
        self._client = HttpClient(
            Limits(read=READ_BYTES, returned=ANSWER_BYTES),
            connect_seconds=CONNECT_SECONDS,
            most_idle=int(descriptor_limit() * IDLE_SHARE),
            tls=ssl.create_default_context(cafile=certifi.where()),
            http2=ssl.create_default_context(cafile=certifi.where()),
        )

    async def close(self) -> None:
        self._client.close()
        if self._own_resolver:
            await self._resolver.close()

    async def send(self, message: Message) -> Answer:
        head = _head(message)
        return await self._request("POST", message.url, message.body, head, self._seconds, message.tenant)

    def begin(self, message: Message, on_answer: Callable[[Answer | None], None]) -> bool:
        """Send on an idle connection; its IP address was checked when it was opened."""

        def end(result: HttpAnswer | Exception) -> None:
            if not isinstance(result, Exception):
                on_answer(_to_answer("POST", result))
            elif isinstance(result, ExchangeFailed) and result.is_unanswered:
                on_answer(None)
            else:
                on_answer(Answer(None, reason=str(result) or type(result).__name__))

        try:
            return self._client.begin(
                "POST", message.url, message.body, AGENT + _head(message), seconds=self._seconds, on_end=end
            )
        except ValueError:  # `send` reports it
            return False

    async def ask(self, url: str, headers: Headers, seconds: float, tenant: str = "") -> Answer:
        """Send an OPTIONS request; `Answer.allowed` has the sink's consent."""
        return await self._request("OPTIONS", url, b"", header_lines(headers), seconds, tenant)

    async def _request(
        self, method: str, url: str, body: bytes, head: str, seconds: float, tenant: str
    ) -> Answer:
        resolve = partial(self._resolve, tenant=tenant)
        try:
            answer = await self._client.request(
                method, url, body, AGENT + head, seconds=seconds, resolve=resolve
            )
        except InvalidSink as error:
            return Answer(None, reason=error.detail)
        except (ExchangeFailed, OSError, ValueError) as error:
            return Answer(None, reason=str(error) or type(error).__name__)
        return _to_answer(method, answer)

    async def _resolve(self, host: str, tenant: str) -> Sequence[str]:
        """Return the IP addresses of a host; raises `InvalidSink` if any of them is forbidden."""
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


def _head(message: Message) -> str:
    head = (
        f"content-type: {message.content_type}\r\nwebhook-id: {message.webhook_id}\r\n"
        f"webhook-timestamp: {message.timestamp}\r\n"
    )
    if (signature := message.signature) is not None:
        head += f"webhook-signature: {signature}\r\n"
    if message.trace or message.headers:
        head += header_lines([*trace_context.headers(message.trace), *message.headers])
    return head


def _to_answer(method: str, answer: HttpAnswer) -> Answer:
    text = answer.body.decode("utf-8", "replace") if answer.body else ""
    if method == "POST" and answer.status < 300:
        return Answer(answer.status, text=text)
    retry_after = answer.headers.get(b"retry-after")
    return Answer(
        answer.status,
        None if retry_after is None else retry_after.decode("latin-1"),
        None if answer.status < 300 else f"it answered {answer.status}",
        text,
        allowed={
            name.decode("latin-1"): value.decode("latin-1").strip()
            for name, value in answer.headers.items()
            if name.startswith(b"webhook-allowed-")
        },
    )
