"""Declares the server's settings."""

from __future__ import annotations

import ipaddress
import math
import re
from functools import cached_property
from typing import Annotated, ClassVar, Self

from pydantic import Field

from edn.runtime.config import (
    URL,
    Count,
    File,
    Port,
    Positive,
    Repeatable,
    Rule,
    ServiceSettings,
    Switch,
    Urls,
    integer,
    items,
    number,
    parse_url,
    setting,
)
from edn.runtime.process import CannotStart
from edn_server.policies import Batching, BreakerLimits, RetryPolicy, UsageLimits

_BATCHING, _RETRIES, _BREAKING, _USAGE = Batching(), RetryPolicy(), BreakerLimits(), UsageLimits()


def _matching(expected: str, pattern: str) -> Rule:
    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError
        return text

    return Rule(expected=expected, parse=parse)


def _parse_location(text: str) -> tuple[float, ...]:
    location = tuple(float(part) for part in text.split(",")) if text.strip() else ()
    if len(location) > 8 or not all(map(math.isfinite, location)):
        raise ValueError
    return location


def _parse_steps(text: str) -> tuple[float, ...]:
    steps = tuple(float(step) for step in text.split(","))
    if not all(0 < step < math.inf for step in steps):
        raise ValueError
    return steps


def _parse_callback(text: str) -> str:
    return parse_url(text) if text else ""


def _parse_nameserver(text: str) -> str:
    host, colon, port = text.rpartition(":") if text.count(":") == 1 else (text, "", "")
    ipaddress.ip_address(host)
    if colon and not 0 < int(port) < 1 << 16:
        raise ValueError
    return text


Seconds = Annotated[float, number(0)]
AtLeastOne = Annotated[int, integer(1)]


class Settings(ServiceSettings):
    program: ClassVar[str] = "edn_server"
    description: ClassVar[str] = "Host subscriptions, match the dispatcher's stream and notify."
    section: ClassVar[str] = "server"
    prefixes: ClassVar[tuple[str, ...]] = ("EDN_SERVER_", "EDN_")

    #: with `smtp_user`, for the relay
    smtp_password: str = Field("", exclude=True, repr=False)

    id: Annotated[str, _matching("1 to 64 of A-Z a-z 0-9 _ . -", r"[A-Za-z0-9_.-]{1,64}")] = setting(
        ..., "this server's name in the network, the same after restarts"
    )
    #: addresses of all dispatchers
    dispatcher: Annotated[Urls, Repeatable("dispatcher")] = setting(
        ...,
        "address of the dispatcher; repeat it for each of several (in the environment: separated by commas)",
    )
    port: Port = setting(0, "port to listen at; 0 takes a free one")
    advertise: Annotated[str | None, Rule(expected=URL, parse=parse_url, metavar="URL", optional=True)] = (
        setting(None, "address that the dispatcher calls, if not host and port")
    )
    location: Annotated[
        tuple[float, ...],
        Rule(expected="up to 8 numbers such as 48.1,11.6", parse=_parse_location, metavar="X,Y"),
    ] = setting((), "location, in the coordinates that subscribers give")
    distance: Positive = setting(
        1.0, "network distance from the dispatcher, for the placement policy `traffic`"
    )
    exchange_seconds: Positive = setting(
        5.0, "seconds between two requests for the subscriptions of the other servers"
    )
    nice: Annotated[int, integer(0, 19)] = setting(
        0, "0 to 19: how far it yields the processor to other processes, above all a dispatcher"
    )
    concurrent_posts: AtLeastOne = setting(
        512, "attempts at the same time; one tenant makes at most half of them"
    )
    nameservers: Annotated[
        tuple[str, ...], items("IP addresses, with :port or without", _parse_nameserver, "ADDRESSES")
    ] = setting((), "name servers for sinks, address or address:port, separated by commas")
    attempt_seconds: Annotated[float, number(0.001)] = setting(15.0, "seconds that one attempt may take")
    batch_events: AtLeastOne = setting(_BATCHING.events, "events in one notification")
    batch_bytes: AtLeastOne = setting(_BATCHING.bytes, "bytes of one notification, about")
    batch_delay: Seconds = setting(_BATCHING.delay, "seconds that an event waits for others to its address")
    retry_steps: Annotated[
        tuple[float, ...],
        Rule(expected="numbers above 0, separated by commas", parse=_parse_steps, metavar="X,X"),
    ] = setting(_RETRIES.steps, "seconds between attempts; the last one repeats")
    give_up_seconds: Seconds = setting(
        _RETRIES.give_up_seconds, "an older notification becomes a dead letter"
    )
    refused_attempts: AtLeastOne = setting(
        _RETRIES.refused_attempts, "attempts of a notification that is answered with 4xx"
    )
    warn_seconds: Seconds = setting(
        _BREAKING.warn_seconds, "an address that fails for so long gets a warning"
    )
    disable_seconds: Annotated[float, number(0.001)] = setting(
        _BREAKING.disable_seconds, "an address that fails for so long is disabled"
    )
    attempts_kept: Seconds = setting(7 * 86_400.0, "seconds that attempts are stored")
    dead_letters_kept: Seconds = setting(30 * 86_400.0, "seconds that dead letters are stored")
    paused_bytes: Count = setting(
        _USAGE.paused, "bytes buffered for a tenant's paused subscriptions; 0 is no limit"
    )
    stream_bytes: Count = setting(_USAGE.stream, "unread bytes in a tenant's streams; 0 is no limit")
    dead_letter_bytes: Count = setting(_USAGE.dead, "bytes of a tenant's dead letters; 0 is no limit")
    disk_floor: Count = setting(
        32 << 20, "accept no events while the disk has fewer free bytes; notifications are still delivered"
    )
    webhook_origin: Annotated[str, _matching("a name such as edn.example.org", r"[A-Za-z0-9._:-]{1,253}")] = (
        setting("edn", "name by which sinks of CloudEvents know this network")
    )
    webhook_rate: AtLeastOne = setting(6000, "POSTs per minute that sinks are asked to consent to")
    webhook_callback: Annotated[str, Rule(expected=URL, parse=_parse_callback, metavar="URL")] = setting(
        "", "address of the dispatcher that sinks can call to consent later, such as https://edn.example.org"
    )
    smtp_host: str = setting("", "relay for mailto: sinks")
    smtp_port: Port = setting(25, "port of the relay")
    smtp_from: str = setting("edn@localhost", "sender of mail")
    smtp_user: str = setting("", "user at the relay")
    smtp_password_file: File = setting(None, "file with that user's password")
    smtp_starttls: Switch = setting(False, "use TLS with the relay")

    @cached_property
    def batching(self) -> Batching:
        return Batching(events=self.batch_events, bytes=self.batch_bytes, delay=self.batch_delay)

    @cached_property
    def retries(self) -> RetryPolicy:
        return RetryPolicy(
            steps=self.retry_steps,
            give_up_seconds=self.give_up_seconds,
            refused_attempts=self.refused_attempts,
        )

    @cached_property
    def breaking(self) -> BreakerLimits:
        return BreakerLimits(warn_seconds=self.warn_seconds, disable_seconds=self.disable_seconds)

    @property
    def limits(self) -> UsageLimits:
        return UsageLimits(paused=self.paused_bytes, stream=self.stream_bytes, dead=self.dead_letter_bytes)

    def read_secrets(self) -> Self:
        settings = super().read_secrets()
        if self.smtp_password_file is None:
            return settings
        try:
            password = self.smtp_password_file.read_text().strip()
        except OSError as error:
            raise CannotStart(f"--smtp-password-file cannot be read: {error.strerror}") from None
        return settings.model_copy(update={"smtp_password": password})
