"""Asks sinks for their consent: "abuse protection" of CloudEvents webhooks, also for plain webhooks.

Theory of operation
-------------------
A subscription may require the consent of its sink (`edn.formats.consent`). The server that hosts it sends an
OPTIONS request to the URL with the network's name and the desired rate:

    WebHook-Request-Origin, WebHook-Request-Rate, WebHook-Request-Callback

Only an answer with `WebHook-Allowed-Origin`, our name or `*`, is a consent; a status alone never is.
`WebHook-Allowed-Rate` is the number of POSTs per minute of all servers together, by default the desired rate.
Each server uses an equal share of it, evenly spaced.

    unknown ──asked, allowed──────────────> granted         stored until no subscription names the sink
       │  └───asked, another name allowed─> unknown         the subscription is refused
       └──────asked, nothing allowed──────> awaiting        if there is a callback; else as above
    awaiting ──callback, or asked again───> granted

A sink is asked when a subscription is stored, and before a POST if it has not consented yet, because the
subscription may have migrated. Notifications wait for a consent as for a failing sink.

The callback is a URL of the dispatcher with this server's id and a token, an HMAC of the sink's URL with the
server's key. So it survives restarts and need not be stored.

Redirects are not followed, and addresses are checked as for every POST (`http`).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import msgspec
import structlog

from edn.errors import InvalidSink
from edn.formats.consent import PREFIX, consent_url
from edn.http import sink_policy
from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.sinks.base import Answer, Message, Sink
from edn_server.sinks.concurrency import Slots
from edn_server.sinks.http import HttpSink
from edn_server.sinks.resolver import Resolver
from edn_server.storage import sink_state
from edn_server.storage.addresses import url_of
from edn_server.storage.interface import Connection
from edn_server.storage.writer import Call, Job

logger = structlog.get_logger()

#: path of the dispatcher, followed by the server's id and a token
CALLBACK = "/cloudevents/consent"
#: timeout of a request; subscribers wait for it
ASK_SECONDS = 5.0
#: interval between deletions of unused consents, and their minimum age
FORGET_SECONDS = 60.0
#: concurrent requests: of one call, and of all
ASKED_AT_ONCE = 32
QUESTIONS = 128

_RATE = re.compile(r"[1-9][0-9]{0,8}\Z", re.ASCII)

State = Literal["granted", "awaiting"]


class Consent(msgspec.Struct, frozen=True):
    """The consent of a sink, granted or awaited."""

    state: State
    #: POSTs per minute of all servers together; None: no limit
    rate: int | None
    #: microseconds of steady time
    since: int
    #: name of the network that asked
    origin: str


@dataclass(frozen=True, slots=True)
class Granted:
    rate: int | None


@dataclass(frozen=True, slots=True)
class Withheld:
    reason: str
    #: whether the callback may still grant it
    later: bool


def read(answer: Answer, origin: str, rate: int) -> Granted | Withheld:
    """Reads the sink's answer to the consent request."""
    if answer.status is None:
        return Withheld(answer.reason or "it did not answer", later=False)
    allowed = answer.allowed.get("webhook-allowed-origin")
    if not 200 <= answer.status < 300 or allowed is None:
        missing = "without WebHook-Allowed-Origin" if allowed is None else "instead of 2xx"
        return Withheld(f"it answered {answer.status} {missing}", later=True)
    if allowed != "*" and allowed.lower() != origin.lower():
        return Withheld(f'it allows only "{allowed[:80]}" to post, not "{origin}"', later=False)
    return read_rate(answer.allowed.get("webhook-allowed-rate", ""), rate)


def read_rate(text: str, asked: int) -> Granted | Withheld:
    """Reads WebHook-Allowed-Rate; empty if it is missing."""
    if text == "*":
        return Granted(None)
    if not text:
        return Granted(asked)
    if not _RATE.match(text):
        return Withheld(
            f'WebHook-Allowed-Rate must be a positive integer or *, got "{text[:80]}"', later=False
        )
    return Granted(int(text))


@owned("loop")
class Consents:
    """The consent of each sink, and the time of its next permitted POST."""

    def __init__(
        self,
        settings: Settings,
        *,
        key: str,
        found: Mapping[str, Consent],
        submit: Callable[[Job[None]], Awaitable[None]],
        servers: Callable[[], int],
        on_granted: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
        resolver: Resolver | None = None,
    ) -> None:
        """`found`: stored consents; `servers`: number of servers that share a rate."""
        self._monotonic = monotonic
        self._settings = settings
        self._key = key.encode()
        # A network with a new name must ask again.
        self._known = {url: one for url, one in found.items() if one.origin == settings.webhook_origin}
        #: digest of a token → URL; digests, so that the time of a search reveals nothing about a token
        self._tokens = {self._digest(self._token(url)): url for url in self._known}
        self._submit = submit
        self._servers = servers
        self._on_granted = on_granted
        self._http = HttpSink(settings, resolver)
        self._slots = Slots(QUESTIONS)
        #: URL → time of the next permitted POST
        self._due: dict[str, float] = {}

    @property
    def origin(self) -> str:
        """The name of this network for sinks."""
        return self._settings.webhook_origin

    @property
    def any(self) -> bool:
        """Whether any consent is known."""
        return bool(self._known)

    async def close(self) -> None:
        await self._http.close()

    # -- asking -----------------------------------------------------------------------------------------

    async def ensure(self, sinks: Iterable[tuple[str, str]]) -> None:
        """Asks those of the sinks, (tenant, URL), that must consent and have not.

        Raises `InvalidSink` if one withholds its consent.
        """
        wanted = {to: tenant for tenant, url in sinks if (to := consent_url(url)) is not None}
        slots = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(url: str) -> Consent | Withheld:
            async with slots:
                return await self.consent(url, wanted[url])

        for url, outcome in zip(wanted, await asyncio.gather(*map(ask, wanted)), strict=True):
            if isinstance(outcome, Withheld):
                raise InvalidSink(f"the sink {url} did not consent to be posted to: {outcome.reason}")

    async def refusal(self, url: str, tenant: str) -> Answer | None:
        """Returns a failed attempt unless the sink has consented; asks it if necessary."""
        consent = await self.consent(url, tenant)
        if isinstance(consent, Withheld):
            return Answer(None, reason=f"the sink did not consent: {consent.reason}")
        return None if consent.state == "granted" else Answer(None, reason="awaiting the sink's consent")

    async def consent(self, url: str, tenant: str = "") -> Consent | Withheld:
        """Returns the consent of a sink; asks it unless it has consented."""
        known = self._known.get(url)
        if known is not None and known.state == "granted":
            return known
        settings = self._settings
        headers = [
            ("webhook-request-origin", settings.webhook_origin),
            ("webhook-request-rate", str(settings.webhook_rate)),
        ]
        if settings.webhook_callback:
            headers.append(("webhook-request-callback", self.callback(url)))
        async with self._slots.slot(tenant):
            answer = await self._http.ask(url, headers, min(ASK_SECONDS, settings.attempt_seconds), tenant)
        outcome = read(answer, settings.webhook_origin, settings.webhook_rate)
        known = self._known.get(url)
        if known is not None and known.state == "granted":
            return known  # by the callback, meanwhile
        if isinstance(outcome, Granted):
            return await self._store(url, "granted", outcome.rate)
        logger.warning("consent_withheld", sink=sink_policy.redacted(url), reason=outcome.reason)
        if outcome.later and settings.webhook_callback:
            return known or await self._store(url, "awaiting", None)
        return outcome

    def callback(self, url: str) -> str:
        """Returns the URL where a sink may consent later."""
        base, server = self._settings.webhook_callback, self._settings.id
        return f"{base}{CALLBACK}/{server}?token={self._token(url)}"

    async def consented(self, token: str, rate: str) -> bool:
        """Grants a consent by its callback; returns whether the token is known."""
        url = self._tokens.get(self._digest(token))
        if url is None:
            return False
        outcome = read_rate(rate, self._settings.webhook_rate)
        if isinstance(outcome, Withheld):
            raise InvalidSink(outcome.reason)
        await self._store(url, "granted", outcome.rate)
        self._on_granted(url)
        return True

    def _token(self, url: str) -> str:
        digest = hmac.digest(self._key, b"consent " + url.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    @staticmethod
    def _digest(token: str) -> bytes:
        return hashlib.sha256(token.encode("utf-8", "replace")).digest()

    async def _store(self, url: str, state: State, rate: int | None) -> Consent:
        consent = Consent(state, rate, int(clock.steady() * 1e6), self._settings.webhook_origin)
        data = msgspec.json.encode(consent)
        await self._submit(Call(partial(sink_state.store_consent, url=url, consent=data), fresh=False))
        self._known[url] = consent
        self._tokens[self._digest(self._token(url))] = url
        return consent

    # -- posting ----------------------------------------------------------------------------------------

    def pause(self, url: str) -> float:
        """Returns the seconds until the next permitted POST; 0 permits and counts one."""
        known = self._known.get(url)
        if known is None or known.rate is None:
            return 0.0
        now = self._monotonic()
        wait = self._due.get(url, 0.0) - now
        if wait > 0:
            return wait
        self._due[url] = now + 60.0 * self._servers() / known.rate
        return 0.0

    def state_of(self, address: str) -> State | None:
        """Returns the state of an address's consent; None if it need not consent."""
        url = consent_url(url_of(address))
        if url is None:
            return None
        known = self._known.get(url)
        return "awaiting" if known is None else known.state

    # -- forgetting -------------------------------------------------------------------------------------

    async def forget(self, used: Iterable[str]) -> None:
        """Deletes the consents of sinks that none of these addresses names."""
        named = {url for address in used if (url := consent_url(url_of(address))) is not None}
        oldest = int((clock.steady() - FORGET_SECONDS) * 1e6)
        for url, consent in list(self._known.items()):
            # The subscription of a new consent may be about to be stored.
            if url not in named and consent.since < oldest:
                await self._submit(
                    Call(partial(sink_state.store_consent, url=url, consent=None), fresh=False)
                )
                self._known.pop(url, None)
                self._tokens.pop(self._digest(self._token(url)), None)
                self._due.pop(url, None)


@dataclass(slots=True)
class ConsentingSink:
    """Posts to plain webhooks that have consented, at the rate that they allow."""

    consents: Consents
    http: Sink

    async def close(self) -> None:
        await self.http.close()

    async def send(self, message: Message) -> Answer:
        url = message.url.removeprefix(PREFIX)
        refusal = await self.consents.refusal(url, message.tenant)
        if refusal is not None:
            return refusal
        if pause := self.consents.pause(url):
            return Answer(None, reason="the sink allows no more at the moment", pause=pause)
        origin = ("webhook-request-origin", self.consents.origin)
        return await self.http.send(replace(message, url=url, headers=(*message.headers, origin)))


def load(db: Connection) -> dict[str, Consent]:
    """Returns the stored consents by URL."""
    return {url: msgspec.json.decode(data, type=Consent) for url, data in sink_state.consents(db)}
