"""The sink of http and https URLs: one POST to an IP address that was checked.

The sink resolves the name, checks every IP address, and connects to one of them. Nothing is resolved twice,
so a name cannot point elsewhere in between. Host header and TLS name stay those of the URL. Redirects and
proxies are not followed. `resolver` keeps a silent name server from delaying other names.

A POST may be repeated on a new connection (`edn.http.client`), under the same webhook-id.

The profile of a message (`profile`) adds headers, a timeout, a token (`oauth`) or a client certificate. Each
certificate has connections of its own. Token endpoints are called like sinks, under the same policy.
"""

from __future__ import annotations

import ssl
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import certifi

from edn import __version__
from edn.errors import InvalidSink
from edn.formats import trace_context
from edn.formats.sink_settings import Certificate
from edn.http import sink_policy
from edn.http.client import Headers, HttpClient, header_lines
from edn.http.exchange import ExchangeFailed, HttpAnswer, Limits
from edn.http.request_limits import descriptor_limit
from edn.http.tls import load_client_certificate
from edn_server.config import Settings
from edn_server.sinks.base import ANSWER_BYTES, Answer, ImmediateSink, Message
from edn_server.sinks.oauth import FETCH_SECONDS, TokenAnswer, TokenFailed, Tokens
from edn_server.sinks.profile import Profile
from edn_server.sinks.resolver import Resolver, Unresolved

CONNECT_SECONDS = 5.0
#: share of the descriptors that idle connections may use: every address has one of its own, if possible
IDLE_SHARE = 0.5
#: how long an address rests if the connection was made too late for the lease of this server
UNOWNED_SECONDS = 0.2
#: limit of an answer's body; the connection of a longer answer is closed
READ_BYTES = 64 << 10
#: client certificates whose connections are kept
MOST_CERTIFICATES = 256

AGENT = f"user-agent: edn/{__version__}\r\naccept: */*\r\n"


class _NotOwned(Exception):
    """Another process may own the outbox by now."""


class HttpSink(ImmediateSink):
    def __init__(
        self,
        settings: Settings,
        resolver: Resolver | None = None,
        may_send: Callable[[], bool] | None = None,
    ) -> None:
        """`resolver` may be shared with other sinks; `may_send` is asked again after connecting."""
        self._permit = None if may_send is None else partial(_check, may_send)
        self._resolver = resolver or Resolver(settings.nameservers)
        self._own_resolver = resolver is None
        # Development allows plain http to every address (`dispatcher.subscriptions.requests`).
        self._allow_loopback = self._allow_http = settings.allow_loopback_sinks
        self._networks = settings.sink_networks
        self._seconds = settings.attempt_seconds
        self._authorities = settings.sink_ca_file
        self._client = HttpClient(
            Limits(read=READ_BYTES, returned=ANSWER_BYTES),
            connect_seconds=CONNECT_SECONDS,
            most_idle=int(descriptor_limit() * IDLE_SHARE),
            tls=self._context(),
            http2=self._context(),
        )
        #: clients by the id of settings with a certificate
        self._certified: OrderedDict[str, HttpClient] = OrderedDict()
        #: of token endpoints, whose answers are longer
        self._token_client: HttpClient | None = None
        self._tokens = Tokens(self._fetch_token)

    def _context(self, certificate: Certificate | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=certifi.where())
        if self._authorities is not None:
            context.load_verify_locations(self._authorities)
        if certificate is not None:
            load_client_certificate(context, certificate.certificate, certificate.key)
        return context

    async def close(self) -> None:
        await self._tokens.close()
        for client in (self._client, self._token_client, *self._certified.values()):
            if client is not None:
                client.close()
        if self._own_resolver:
            await self._resolver.close()

    async def send(self, message: Message) -> Answer:
        head = _head(message)
        if message.profile is not None:
            return await self._send_with(message.profile, message, head)
        return await self._request("POST", message.url, message.body, head, self._seconds, message.tenant)

    async def _send_with(self, profile: Profile, message: Message, head: str) -> Answer:
        """Make one attempt with the settings of a sink."""
        if profile.problem:
            return Answer(None, reason=profile.problem)
        try:
            client = self._client_of(profile)
        except ssl.SSLError as error:
            return Answer(None, reason=f"the client certificate cannot be used: {error.reason or error}")
        seconds = profile.seconds or self._seconds
        url, body, tenant = message.url, message.body, message.tenant
        head += profile.head
        if profile.oauth is None:
            return await self._request("POST", url, body, head, seconds, tenant, client)
        is_cached = self._tokens.cached(profile.id) is not None
        for is_repeatable in (is_cached, False):
            try:
                token = await self._tokens.get(profile.id, profile.oauth, tenant)
            except TokenFailed as error:
                return Answer(None, reason=str(error))
            lines = f"{head}authorization: Bearer {token}\r\n"
            answer = await self._request("POST", url, body, lines, seconds, tenant, client)
            if answer.status != 401:
                break
            self._tokens.discard(profile.id, token)
            if not is_repeatable:  # the token was new
                break
        return answer

    def _client_of(self, profile: Profile) -> HttpClient:
        """Return the client with the certificate of a profile; raises `ssl.SSLError`."""
        if profile.certificate is None:
            return self._client
        client = self._certified.get(profile.id)
        if client is None:
            client = self._certified[profile.id] = HttpClient(
                Limits(read=READ_BYTES, returned=ANSWER_BYTES),
                connect_seconds=CONNECT_SECONDS,
                most_idle=64,
                tls=self._context(profile.certificate),
                http2=self._context(profile.certificate),
            )
            if len(self._certified) > MOST_CERTIFICATES:
                self._certified.popitem(last=False)[1].close()
        else:
            self._certified.move_to_end(profile.id)
        return client

    async def _fetch_token(self, url: str, body: bytes, head: str, tenant: str) -> TokenAnswer:
        if self._token_client is None:
            self._token_client = HttpClient(
                Limits(read=READ_BYTES, returned=READ_BYTES),
                connect_seconds=CONNECT_SECONDS,
                most_idle=64,
                tls=self._context(),
                http2=self._context(),
            )
        resolve = partial(self._resolve, tenant=tenant, is_plain=url.lower().startswith("http:"))
        try:
            answer = await self._token_client.request(
                "POST", url, body, AGENT + head, seconds=FETCH_SECONDS, resolve=resolve
            )
        except InvalidSink as error:
            return TokenAnswer(None, b"", error.detail)
        except (ExchangeFailed, OSError, ValueError) as error:
            return TokenAnswer(None, b"", str(error) or type(error).__name__)
        return TokenAnswer(answer.status, answer.body)

    def begin(self, message: Message, on_answer: Callable[[Answer | None], None]) -> bool:
        """Send on an idle connection; its IP address was checked when it was opened."""
        profile, head, seconds, client = message.profile, _head(message), self._seconds, self._client
        token: str | None = None
        if profile is not None:
            token = None if profile.oauth is None else self._tokens.cached(profile.id)
            if profile.problem or profile.certificate is not None or (profile.oauth and token is None):
                return False
            head += profile.head if token is None else f"{profile.head}authorization: Bearer {token}\r\n"
            seconds = profile.seconds or seconds

        def end(result: HttpAnswer | Exception) -> None:
            if not isinstance(result, Exception):
                if result.status == 401 and token is not None and profile is not None:
                    self._tokens.discard(profile.id, token)
                    on_answer(None)  # `send` repeats it with a new token
                else:
                    on_answer(_to_answer("POST", result))
            elif isinstance(result, ExchangeFailed) and result.is_unanswered:
                on_answer(None)
            else:
                on_answer(Answer(None, reason=str(result) or type(result).__name__))

        try:
            return client.begin("POST", message.url, message.body, AGENT + head, seconds=seconds, on_end=end)
        except ValueError:  # `send` reports it
            return False

    async def ask(self, url: str, headers: Headers, seconds: float, tenant: str = "") -> Answer:
        """Send an OPTIONS request; `Answer.allowed` has the sink's consent."""
        return await self._request("OPTIONS", url, b"", header_lines(headers), seconds, tenant)

    async def _request(
        self,
        method: str,
        url: str,
        body: bytes,
        head: str,
        seconds: float,
        tenant: str,
        client: HttpClient | None = None,
    ) -> Answer:
        resolve = partial(self._resolve, tenant=tenant, is_plain=url.lower().startswith("http:"))
        try:
            answer = await (client or self._client).request(
                method, url, body, AGENT + head, seconds=seconds, resolve=resolve, permit=self._permit
            )
        except _NotOwned:
            return Answer(None, pause=UNOWNED_SECONDS)
        except InvalidSink as error:
            return Answer(None, reason=error.detail)
        except (ExchangeFailed, OSError, ValueError) as error:
            return Answer(None, reason=str(error) or type(error).__name__)
        return _to_answer(method, answer)

    async def _resolve(self, host: str, tenant: str, is_plain: bool) -> Sequence[str]:
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
            reason = sink_policy.refusal(
                address, allow_loopback=self._allow_loopback, networks=self._networks
            )
            if reason is None and is_plain and not self._allow_http:
                reason = sink_policy.plain_refusal(address, self._networks)
            if reason is not None:
                raise InvalidSink(f"{host}: {reason}")
        return addresses


def _check(may_send: Callable[[], bool]) -> None:
    if not may_send():
        raise _NotOwned


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
