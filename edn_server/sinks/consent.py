"""Whether sinks agree to be posted to: "abuse protection" of the CloudEvents webhooks, for plain ones too.

Theory of operation
-------------------
A subscription may want its sink to be asked first (`edn.formats.consent`). The server that
hosts it asks, by an OPTIONS to the very URL, with the network's name and the rate that it would like:

    WebHook-Request-Origin, WebHook-Request-Rate, WebHook-Request-Callback

and nothing but an answer with `WebHook-Allowed-Origin`, our name or `*`, is a consent; a status alone never
is. `WebHook-Allowed-Rate` is how many POSTs a minute all servers together may make: each takes its equal part
of it, evenly spaced. Where nothing is said, it is the rate that was asked for.

    unknown ──asked, allowed──────────────> granted         kept on disk until no subscription names the sink
       │  └───asked, another name allowed─> unknown         subscribing is refused
       └──────asked, nothing allowed──────> awaiting        if it can consent later; else as above
    awaiting ──callback, or asked again───> granted

It is asked when a subscription is stored, and before a POST if it has not consented yet: a subscription may
have come from another server. What waits for a sink that has not consented waits as for one that fails.

The callback is an address of the dispatcher, with this server's name and a token that only this server can
make, of its key and the sink's URL; so it holds over restarts, and nothing of it is kept.

Redirects are not followed, and addresses are checked as for every POST (`http`). Event loop only.
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
from edn_server.storage.writer import Job

logger = structlog.get_logger()

#: of the dispatcher: what follows is the server's id, and a token
CALLBACK = "/cloudevents/consent"
#: what a question may take: subscribers wait for it
ASK_SECONDS = 5.0
#: how often sinks are forgotten that no subscription names any more, and how old what was said must be
FORGET_SECONDS = 60.0
#: questions at the same time: of one call, and of all
ASKED_AT_ONCE = 32
QUESTIONS = 128

_RATE = re.compile(r"[1-9][0-9]{0,8}\Z", re.ASCII)

State = Literal["granted", "awaiting"]


class Standing(msgspec.Struct, frozen=True):
    """How it is with a sink."""

    state: State
    #: POSTs a minute of all servers together; None: no limit
    rate: int | None
    #: microseconds of steady time
    since: int
    #: whom it consented to
    origin: str


@dataclass(frozen=True, slots=True)
class Granted:
    rate: int | None


@dataclass(frozen=True, slots=True)
class Withheld:
    reason: str
    #: it may still come, by the callback
    later: bool


def read(answer: Answer, origin: str, rate: int) -> Granted | Withheld:
    """Read the sink's answer to the consent request."""
    if answer.status is None:
        return Withheld(answer.reason or "it did not answer", later=False)
    allowed = answer.allowed.get("webhook-allowed-origin")
    if not 200 <= answer.status < 300 or allowed is None:
        return Withheld(
            f"it answered {answer.status} "
            + ("without WebHook-Allowed-Origin" if allowed is None else "where 200 is right"),
            later=True,
        )
    if allowed != "*" and allowed.lower() != origin.lower():
        return Withheld(f'it allows "{allowed[:80]}" to post, and not "{origin}"', later=False)
    return read_rate(answer.allowed.get("webhook-allowed-rate", ""), rate)


def read_rate(text: str, asked: int) -> Granted | Withheld:
    """Read WebHook-Allowed-Rate; empty if it is missing."""
    if text == "*":
        return Granted(None)
    if not text:
        return Granted(asked)
    if not _RATE.match(text):
        return Withheld(f'WebHook-Allowed-Rate is "{text[:80]}"; a number or * is right', later=False)
    return Granted(int(text))


@owned("loop")
class Consents:
    """The consent of each sink, and the time of its next permitted POST."""

    def __init__(
        self,
        settings: Settings,
        *,
        key: str,
        found: Mapping[str, Standing],
        submit: Callable[[Job[None]], Awaitable[None]],
        servers: Callable[[], int],
        on_granted: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
        resolver: Resolver | None = None,
    ) -> None:
        """`found`: what is on disk; `servers`: how many share a rate; `on_granted` hears of a sink's URL."""
        self._monotonic = monotonic
        self._settings = settings
        self._key = key.encode()
        # A network that has taken another name must ask again.
        self._known = {url: one for url, one in found.items() if one.origin == settings.webhook_origin}
        #: digest of a token → URL; by digests, so that how long a search takes says nothing of a token
        self._tokens = {self._digest(self._token(url)): url for url in self._known}
        self._submit = submit
        self._servers = servers
        self._on_granted = on_granted
        self._http = HttpSink(settings, resolver)
        self._slots = Slots(QUESTIONS)
        #: URL → time before which it is not posted to
        self._due: dict[str, float] = {}

    @property
    def origin(self) -> str:
        """The name by which sinks know this network."""
        return self._settings.webhook_origin

    @property
    def any(self) -> bool:
        """Whether anything is known of any sink."""
        return bool(self._known)

    async def close(self) -> None:
        await self._http.close()

    # -- asking -----------------------------------------------------------------------------------------

    async def ensure(self, sinks: Iterable[tuple[str, str]]) -> None:
        """Ask those of these sinks that must consent and have not; raises `InvalidSink` if one does not.

        Each is given as tenant and URL.
        """
        wanted = {to: tenant for tenant, url in sinks if (to := consent_url(url)) is not None}
        slots = asyncio.Semaphore(ASKED_AT_ONCE)

        async def one(url: str) -> Standing | Withheld:
            async with slots:
                return await self.standing(url, wanted[url])

        for url, outcome in zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True):
            if isinstance(outcome, Withheld):
                raise InvalidSink(f"the sink {url} did not consent to be posted to: {outcome.reason}")

    async def standing(self, url: str, tenant: str = "") -> Standing | Withheld:
        """How it is with a sink, which is asked unless it has consented."""
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
        said = read(answer, settings.webhook_origin, settings.webhook_rate)
        known = self._known.get(url)
        if known is not None and known.state == "granted":
            return known  # by the callback, meanwhile
        if isinstance(said, Granted):
            return await self._become(url, "granted", said.rate)
        logger.warning("consent_withheld", sink=sink_policy.redacted(url), reason=said.reason)
        if said.later and settings.webhook_callback:
            return known or await self._become(url, "awaiting", None)
        return said

    def callback(self, url: str) -> str:
        """Where a sink may consent later."""
        base, server = self._settings.webhook_callback, self._settings.id
        return f"{base}{CALLBACK}/{server}?token={self._token(url)}"

    async def consented(self, token: str, rate: str) -> bool:
        """The callback was called; whether it is one that was given to a sink that is known."""
        url = self._tokens.get(self._digest(token))
        if url is None:
            return False
        said = read_rate(rate, self._settings.webhook_rate)
        if isinstance(said, Withheld):
            raise InvalidSink(said.reason)
        await self._become(url, "granted", said.rate)
        self._on_granted(url)
        return True

    def _token(self, url: str) -> str:
        digest = hmac.digest(self._key, b"consent " + url.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    @staticmethod
    def _digest(token: str) -> bytes:
        return hashlib.sha256(token.encode("utf-8", "replace")).digest()

    async def _become(self, url: str, state: State, rate: int | None) -> Standing:
        standing = Standing(state, rate, int(clock.steady() * 1e6), self._settings.webhook_origin)
        await self._submit(Save(url, standing))
        self._known[url] = standing
        self._tokens[self._digest(self._token(url))] = url
        return standing

    # -- posting ----------------------------------------------------------------------------------------

    def pause(self, url: str) -> float:
        """Seconds to wait before the next POST; 0: it may be made now, and counts."""
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
        """None: it is not asked."""
        url = consent_url(url_of(address))
        if url is None:
            return None
        known = self._known.get(url)
        return "awaiting" if known is None else known.state

    # -- forgetting -------------------------------------------------------------------------------------

    async def forget(self, used: Iterable[str]) -> None:
        """What is known of sinks that none of these addresses names: whoever comes back is asked anew."""
        kept = {url for address in used if (url := consent_url(url_of(address))) is not None}
        oldest = int((clock.steady() - FORGET_SECONDS) * 1e6)
        for url, standing in list(self._known.items()):
            # One that was asked just now is about to be stored.
            if url not in kept and standing.since < oldest:
                await self._submit(Save(url, None))
                self._known.pop(url, None)
                self._tokens.pop(self._digest(self._token(url)), None)
                self._due.pop(url, None)


class AskedSink:
    """Posts to plain webhooks that consented, and no more than they allow."""

    def __init__(self, consents: Consents, http: Sink) -> None:
        self._consents = consents
        self._http = http

    async def close(self) -> None:
        await self._http.close()

    async def send(self, message: Message) -> Answer:
        url = message.url.removeprefix(PREFIX)
        standing = await self._consents.standing(url, message.tenant)
        if isinstance(standing, Withheld):
            return Answer(None, reason=f"the sink did not consent: {standing.reason}")
        if standing.state != "granted":
            return Answer(None, reason="awaiting the sink's consent")
        if pause := self._consents.pause(url):
            return Answer(None, reason="the sink allows no more at the moment", pause=pause)
        origin = ("webhook-request-origin", self._consents.origin)
        return await self._http.send(replace(message, url=url, headers=(*message.headers, origin)))


def load(db: Connection) -> dict[str, Standing]:
    """Return the standing of sinks that were asked for their consent, by URL."""
    return {url: msgspec.json.decode(data, type=Standing) for url, data in sink_state.consents(db)}


class Save(Job[None]):
    """Write down how it is with a sink; None: nothing is known."""

    def __init__(self, url: str, standing: Standing | None) -> None:
        self._url = url
        self._standing = standing

    def work(self, db: Connection) -> None:
        data = None if self._standing is None else msgspec.json.encode(self._standing)
        sink_state.store_consent(db, self._url, data)
