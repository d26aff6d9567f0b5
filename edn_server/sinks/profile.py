"""The profile of an address: how its sink wants to be delivered to, resolved once per address.

An address without settings of its own has the server's profile, so that the hot path pays one look-up for
it. Profiles of other addresses are compiled from their settings (`edn.formats.sink_settings`): the lines of
static headers, the retry policy, the limiter of the rate.
"""

from __future__ import annotations

import base64
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from edn.formats import sink_settings
from edn.formats.sink_settings import ApiKey, Basic, Bearer, Certificate, Credentials, OAuth2, SinkSettings
from edn.http.client import header_lines
from edn.runtime.ownership import owned
from edn_server.policies import RetryPolicy
from edn_server.storage.addresses import parts_of
from edn_server.subscriptions.view import RegistryView

#: profiles in memory; the least recently used is compiled again
MOST_PROFILES = 20_000
#: seconds' worth of deliveries that may follow each other at once
BURST_SECONDS = 0.1


class Limiter:
    """Permits a number of deliveries per second."""

    __slots__ = ("_at", "_most", "_rate", "_time", "_tokens")

    def __init__(self, rate: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._time = monotonic
        self._most = max(1.0, rate * BURST_SECONDS)
        self._tokens = self._most
        self._at = monotonic()

    def wait(self) -> float:
        """Return the seconds until a delivery is permitted."""
        now = self._time()
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._rate)
        self._at = now
        missing = 1.0 - self._tokens
        return missing / self._rate if missing > 1e-9 else 0.0

    def take(self) -> float:
        """Count a delivery and return 0; or return the seconds until one is permitted."""
        wait = self.wait()
        if not wait:
            self._tokens -= 1.0
        return wait


@dataclass(frozen=True, slots=True)
class Profile:
    #: id of the settings; empty: those of the server
    id: str
    retries: RetryPolicy
    ordered: bool = True
    #: lines of static headers, `authorization` among them
    head: str = field(default="", repr=False)
    #: timeout of an attempt; None: the server's
    seconds: float | None = None
    limiter: Limiter | None = None
    #: for tokens that are fetched
    oauth: OAuth2 | None = None
    #: for mutual TLS
    certificate: Certificate | None = None
    #: all credentials, for sinks that have no headers
    credentials: Credentials | None = None
    #: why no attempt can be made
    problem: str = ""


def compile_profile(settings: SinkSettings, credentials: str | None, default: RetryPolicy) -> Profile:
    """Compile a profile; `credentials` as stored, `default`: the server's policy."""
    secret: Credentials | None = None
    problem = ""
    if settings.credentials:
        try:
            secret = sink_settings.decode_credentials(credentials or "")
        except msgspec.MsgspecError:
            problem = f"the stored credentials of type {settings.credentials} cannot be read"
    headers = [*settings.headers.items()]
    if isinstance(secret, Bearer):
        headers.append(("authorization", f"Bearer {secret.token}"))
    elif isinstance(secret, Basic):
        pair = base64.b64encode(f"{secret.user}:{secret.password}".encode()).decode()
        headers.append(("authorization", f"Basic {pair}"))
    elif isinstance(secret, ApiKey):
        headers.append((secret.header.lower(), secret.value))
    return Profile(
        id=settings.id,
        retries=_policy(settings, default),
        ordered=settings.ordered,
        head=header_lines(headers),
        seconds=settings.timeout,
        limiter=None if settings.rate is None else Limiter(settings.rate),
        oauth=secret if isinstance(secret, OAuth2) else None,
        certificate=secret if isinstance(secret, Certificate) else None,
        credentials=secret,
        problem=problem,
    )


def _policy(settings: SinkSettings, default: RetryPolicy) -> RetryPolicy:
    retry = settings.retry
    if retry is None:
        return default
    return RetryPolicy(
        steps=retry.steps() or default.steps,
        give_up_seconds=default.give_up_seconds if retry.give_up is None else retry.give_up,
        refused_attempts=default.refused_attempts,
        longest_asked=default.longest_asked,
        permanent=frozenset(retry.permanent),
    )


@owned("loop")
class Profiles:
    """The profiles of addresses."""

    def __init__(self, view: RegistryView, retries: RetryPolicy) -> None:
        self._view = view
        self._default = Profile("", retries)
        self._known: OrderedDict[str, Profile] = OrderedDict()

    def of(self, address: str) -> Profile:
        id = parts_of(address).settings
        if not id:
            return self._default
        known = self._known.get(address)
        if known is None:
            known = self._known[address] = self._compile(id)
            if len(self._known) > MOST_PROFILES:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(address)
        return known

    def _compile(self, id: str) -> Profile:
        stored = self._view.sink(id)
        if stored is None:  # its rows outlive no version, so this is an error of the server
            return Profile(id, self._default.retries, problem=f"the settings {id} of the sink are missing")
        return compile_profile(stored.settings, stored.credentials, self._default.retries)
