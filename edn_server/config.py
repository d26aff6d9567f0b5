"""The settings of a server."""

from __future__ import annotations

import ipaddress
import math
import re
from functools import cached_property
from typing import Annotated, ClassVar, Self

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

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


_ID_RULE = "1 to 64 of A-Z a-z 0-9 _ . -"


def _parse_id(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", text):
        raise ValueError
    return text


def _parse_optional_id(text: str) -> str:
    return _parse_id(text) if text else ""


Seconds = Annotated[float, number(0)]
AtLeastOne = Annotated[int, integer(1)]


class Settings(ServiceSettings):
    program: ClassVar[str] = "edn_server"
    description: ClassVar[str] = "Host subscriptions, match events and deliver notifications."
    section: ClassVar[str] = "server"
    prefixes: ClassVar[tuple[str, ...]] = ("EDN_SERVER_", "EDN_")

    #: password of `smtp_user`
    smtp_password: str = Field("", exclude=True, repr=False)

    spare: Switch = setting(
        False, "with --database: wait for a server that dies, and replace it; --id then names a preferred one"
    )
    spare_for: Annotated[
        tuple[str, ...], items("ids of servers, separated by commas", _parse_id, "IDS", unique=True)
    ] = setting((), "servers that a spare may replace, separated by commas; any if empty")
    spare_after_stop: Positive = setting(
        60.0, "seconds after which a spare replaces a server that was stopped in good order"
    )
    id: Annotated[str, Rule(expected=_ID_RULE, parse=_parse_optional_id)] = Field(
        "", validate_default=True, description="id of this server in the network; must stay the same"
    )
    dispatcher: Annotated[Urls, Repeatable("dispatcher")] = setting(
        ...,
        "URL of a dispatcher; repeatable (in the environment: separated by commas)",
    )
    port: Port = setting(0, "port to listen on; 0 selects a free one")
    advertise: Annotated[str | None, Rule(expected=URL, parse=parse_url, metavar="URL", optional=True)] = (
        setting(None, "URL that the dispatcher calls, if not host and port")
    )
    location: Annotated[
        tuple[float, ...],
        Rule(expected="up to 8 numbers such as 48.1,11.6", parse=_parse_location, metavar="X,Y"),
    ] = setting((), "location, in the coordinates that subscribers use")
    distance: Positive = setting(
        1.0, "network distance from the dispatcher, for the placement policy `traffic`"
    )
    exchange_seconds: Positive = setting(5.0, "seconds between two reads of the other servers' summaries")
    nice: Annotated[int, integer(0, 19)] = setting(0, "process niceness, 0 to 19")
    concurrent_posts: AtLeastOne = setting(512, "concurrent attempts; a tenant gets at most half of them")
    nameservers: Annotated[
        tuple[str, ...], items("IP addresses, with :port or without", _parse_nameserver, "ADDRESSES")
    ] = setting((), "name servers for sinks, address or address:port, separated by commas")
    sink_ca_file: File = setting(
        None, "PEM file with certificate authorities for https sinks, besides the public ones"
    )
    attempt_seconds: Annotated[float, number(0.001)] = setting(15.0, "timeout of an attempt in seconds")
    batch_events: AtLeastOne = setting(_BATCHING.events, "maximum of events per POST")
    batch_bytes: AtLeastOne = setting(_BATCHING.bytes, "approximate maximum of bytes per POST")
    batch_delay: Seconds = setting(_BATCHING.delay, "seconds to wait for further notifications")
    retry_steps: Annotated[
        tuple[float, ...],
        Rule(expected="numbers above 0, separated by commas", parse=_parse_steps, metavar="X,X"),
    ] = setting(_RETRIES.steps, "seconds between attempts; the last step repeats")
    give_up_seconds: Seconds = setting(
        _RETRIES.give_up_seconds, "age in seconds at which a failing notification becomes a dead letter"
    )
    refused_attempts: AtLeastOne = setting(
        _RETRIES.refused_attempts, "maximum of attempts if the sink answers 4xx"
    )
    warn_seconds: Seconds = setting(
        _BREAKING.warn_seconds, "seconds of failure after which an address gets a warning"
    )
    disable_seconds: Annotated[float, number(0.001)] = setting(
        _BREAKING.disable_seconds, "seconds of failure after which an address is disabled"
    )
    attempts_kept: Seconds = setting(7 * 86_400.0, "seconds for which attempts are stored")
    dead_letters_kept: Seconds = setting(30 * 86_400.0, "seconds for which dead letters are stored")
    paused_bytes: Count = setting(
        _USAGE.paused, "bytes per tenant buffered for paused subscriptions; 0 is no limit"
    )
    stream_bytes: Count = setting(_USAGE.stream, "unread bytes per tenant in streams; 0 is no limit")
    dead_letter_bytes: Count = setting(_USAGE.dead, "bytes per tenant of dead letters; 0 is no limit")
    disk_floor: Count = setting(32 << 20, "free bytes below which events are refused; delivery continues")
    webhook_origin: Annotated[str, _matching("a name such as edn.example.org", r"[A-Za-z0-9._:-]{1,253}")] = (
        setting("edn", "name of this network for sinks that must consent")
    )
    webhook_rate: AtLeastOne = setting(6000, "POSTs per minute that sinks are asked for")
    webhook_callback: Annotated[str, Rule(expected=URL, parse=_parse_callback, metavar="URL")] = setting(
        "", "URL of the dispatcher where sinks can consent later, such as https://edn.example.org"
    )
    smtp_host: str = setting("", "mail relay for mailto: sinks")
    smtp_port: Port = setting(25, "port of the mail relay")
    smtp_from: str = setting("edn@localhost", "sender address of mail")
    smtp_user: str = setting("", "user at the mail relay")
    smtp_password_file: File = setting(None, "file with the password of --smtp-user")
    smtp_starttls: Switch = setting(False, "use STARTTLS with the mail relay")

    @field_validator("spare")
    @classmethod
    def _check_spare(cls, spare: bool, info: ValidationInfo) -> bool:
        if spare and info.data.get("database") is None:
            raise PydanticCustomError("rule", "must be given together with --database")
        return spare

    @field_validator("spare_for")
    @classmethod
    def _check_spare_for(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if names and not info.data.get("spare"):
            raise PydanticCustomError("rule", "must be given together with --spare")
        return names

    @field_validator("id")
    @classmethod
    def _require_id(cls, id: str, info: ValidationInfo) -> str:
        if not id and not info.data.get("spare"):
            raise PydanticCustomError("missing", "is required")
        return id

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
