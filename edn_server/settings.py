"""What an operator can set: by flags, by `EDN_SERVER_*`, by `EDN_*` in the environment, else by default."""

from __future__ import annotations

import argparse
import ipaddress
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edn import configuring, timekeeping
from edn.heads import UNCOUNTED
from edn.process import CannotStart, read_networks, read_secret
from edn_server.policies import STEPS, Batching, BreakerLimits, RetryPolicy
from edn_server.storage import usage

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    #: unique in the network, and the same over restarts
    id: str
    #: folder of the database; made when missing
    data: Path
    #: where the dispatcher is, or the first of several
    dispatcher: str
    #: shared by the network's processes; every internal call carries it
    secret: str
    #: where the others are
    further_dispatchers: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    #: 0 takes a free one
    port: int = 0
    #: what the dispatcher should call; None is made from host and port
    advertise: str | None = None
    #: where it is, in coordinates that subscribers use too
    location: tuple[float, ...] = ()
    #: network distance from the dispatcher
    distance: float = 1.0
    #: sinks on loopback, over plain http, are for development only
    allow_loopback_sinks: bool = False
    #: who sends, as sinks of CloudEvents are told and asked about
    webhook_origin: str = "edn"
    #: POSTs a minute that they are asked to allow
    webhook_rate: int = 6000
    #: where the dispatcher is reached from outside, for sinks that consent later; empty: they cannot
    webhook_callback: str = ""
    #: bytes of one frame or store request
    body_limit: int = 64 << 20
    #: attempts at the same time; a tenant makes at most half of them (`concurrency`)
    concurrent_posts: int = 512
    #: name servers for the names of sinks, as address or address:port; empty: those of the system
    nameservers: tuple[str, ...] = ()
    #: seconds between two looks at what the other servers host
    exchange_seconds: float = 5.0
    #: seconds that one attempt may take
    attempt_seconds: float = 15.0
    #: what one notification may hold, and how long an event may wait for company
    batching: Batching = field(default_factory=Batching)
    #: when attempts are made again, and when no more
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    #: after how long a failing address is warned of, and disabled
    breaking: BreakerLimits = field(default_factory=BreakerLimits)
    #: seconds that attempts, and dead letters, are kept
    attempts_kept: float = 7 * 86_400.0
    dead_letters_kept: float = 30 * 86_400.0
    #: the relay for mail; without a host none is sent
    smtp_host: str = ""
    smtp_port: int = 25
    smtp_from: str = "edn@localhost"
    smtp_starttls: bool = False
    smtp_user: str = ""
    smtp_password: str = field(default="", repr=False)
    #: bytes that each tenant may occupy here beyond what is being delivered
    limits: usage.Limits = field(default_factory=usage.Limits)
    #: bytes that must stay free for the database; below that the server takes no frames and subscriptions,
    #: and only delivers and deletes
    disk_floor: int = 32 << 20
    #: seconds between two looks for rows that nothing needs any more
    collect_seconds: float = 5.0
    #: open connections from one client address; 0 is no limit, None the default of `edn.heads`
    connections_per_address: int | None = None
    #: networks whose clients are not counted: proxies
    uncounted_clients: tuple[str, ...] = UNCOUNTED
    #: when a wall clock is suspect, and how long it must agree with the elapsed time to be trusted again
    clock: timekeeping.Limits = field(default_factory=timekeeping.Limits)
    #: added to the process's niceness
    nice: int = 0


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """The settings, or `CannotStart`; for an unknown flag, and `--help`, argparse prints and exits."""

    file = configuring.read(arguments, environment, section="server", prefix="EDN_SERVER_")
    own, environment = environment, file.below(environment)

    def given(name: str, default: str | None = None) -> str | None:
        key = name.upper().replace("-", "_")
        return environment.get(f"EDN_SERVER_{key}", environment.get(f"EDN_{key}", default))

    parser = argparse.ArgumentParser(
        prog="python -m edn_server",
        description="Host subscriptions, match the dispatcher's stream and notify.",
        epilog="Each flag can be given in the environment: --secret-file as EDN_SERVER_SECRET_FILE or "
        "EDN_SECRET_FILE.",
    )
    configuring.add_flags(parser)
    add = parser.add_argument
    add("--id", default=given("id"), help="this server's name in the network")
    add("--data", default=given("data"), metavar="DIR", help="its data folder")
    add(
        "--dispatcher",
        action="append",
        metavar="URL",
        help="where the dispatcher is; again for each of several (in the environment: with commas)",
    )
    add("--host", default=given("host", "127.0.0.1"), help="address to listen at (%(default)s)")
    add("--port", default=given("port", "0"), help="port to listen at; 0 takes a free one (%(default)s)")
    add("--advertise", default=given("advertise"), metavar="URL", help="what the dispatcher should call")
    add(
        "--location",
        default=given("location", ""),
        metavar="X,Y",
        help="where it is, in the coordinates that subscribers give",
    )
    add(
        "--distance",
        default=given("distance", "1"),
        help="network distance from the dispatcher, for the placement policy `traffic` (%(default)s)",
    )
    add(
        "--exchange-seconds",
        default=given("exchange-seconds", "5"),
        help="how often it learns what the other servers host (%(default)s)",
    )
    add("--secret-file", default=given("secret-file"), metavar="FILE", help="holds the network's secret")
    add(
        "--allow-loopback-sinks",
        action="store_true",
        default=configuring.switch("allow-loopback-sinks", given("allow-loopback-sinks")),
        help="notify loopback addresses, over plain http too: for development only",
    )
    add(
        "--nice",
        default=given("nice", "0"),
        help="0 to 19: how much it yields to others on this machine, a dispatcher above all (%(default)s)",
    )
    add(
        "--connections-per-address",
        default=given("connections-per-address", ""),
        help="open connections from one client address; 0 is no limit (1000, or a quarter of `ulimit -n`)",
    )
    add(
        "--uncounted-clients",
        default=given("uncounted-clients", ",".join(UNCOUNTED)),
        metavar="NETWORKS",
        help="proxies, whose connections have no such limit, with commas between (%(default)s)",
    )
    add(
        "--clock-jump-seconds",
        default=given("clock-jump-seconds", "300"),
        help="a wall clock that departs from the elapsed time by more is suspect (%(default)s)",
    )
    add(
        "--clock-trust-seconds",
        default=given("clock-trust-seconds", "300"),
        help="seconds that a suspect wall clock must agree with the elapsed time (%(default)s)",
    )
    _add_delivery(add, given)
    values = configuring.parse(parser, file, arguments)
    values.dispatcher = values.dispatcher or [u for u in (given("dispatcher") or "").split(",") if u]
    for name in ("id", "data", "dispatcher", "secret_file"):
        if not getattr(values, name):
            flag = "--" + name.replace("_", "-")
            raise CannotStart(f"{flag} is required (or EDN_SERVER_{name.upper()} in the environment)")
    if not _ID.match(values.id):
        raise CannotStart(f'--id "{values.id}": up to 64 of A-Z a-z 0-9 _ . - are right')
    settings = Settings(
        id=values.id,
        data=Path(values.data),
        dispatcher=_url("--dispatcher", values.dispatcher[0]),
        further_dispatchers=tuple(_url("--dispatcher", url) for url in values.dispatcher[1:]),
        # A check may run where the file is not.
        secret="" if values.check_config else read_secret(Path(values.secret_file)),
        host=values.host,
        port=_port("--port", values.port),
        advertise=_url("--advertise", values.advertise) if values.advertise else None,
        location=_location(values.location),
        distance=_positive("--distance", values.distance),
        exchange_seconds=_positive("--exchange-seconds", values.exchange_seconds),
        allow_loopback_sinks=values.allow_loopback_sinks,
        clock=timekeeping.Limits(
            jump=_positive("--clock-jump-seconds", values.clock_jump_seconds),
            trust=_positive("--clock-trust-seconds", values.clock_trust_seconds),
        ),
        nice=_nice(values.nice),
        connections_per_address=_count("--connections-per-address", values.connections_per_address),
        uncounted_clients=read_networks("--uncounted-clients", values.uncounted_clients),
        **_delivery(values),
    )
    configuring.tell(parser, values, file, arguments, own)
    return settings


_DELIVERY = (
    ("concurrent-posts", "512", "attempts at the same time; one tenant makes at most half of them"),
    ("nameservers", "", "name servers for sinks, address or address:port, with commas between"),
    ("attempt-seconds", "15", "what one attempt may take"),
    ("batch-events", "500", "events in one notification"),
    ("batch-bytes", str(1 << 20), "bytes of one notification, about"),
    ("batch-delay", "0", "seconds that an event waits for others to its address"),
    (
        "retry-steps",
        ",".join(f"{step:g}" for step in STEPS),
        "seconds between attempts, the last again and again",
    ),
    ("give-up-seconds", "259200", "a notification that is older becomes a dead letter"),
    ("refused-attempts", "12", "attempts of a notification that is answered with 4xx"),
    ("warn-seconds", "129600", "an address that fails for so long is warned of"),
    ("disable-seconds", "432000", "an address that fails for so long is disabled"),
    ("attempts-kept", "604800", "seconds that attempts are remembered"),
    ("dead-letters-kept", "2592000", "seconds that dead letters are kept"),
    (
        "paused-bytes",
        str(256 << 20),
        "bytes that wait for a tenant's paused subscriptions; 0 is any",
    ),
    ("stream-bytes", str(256 << 20), "bytes in a tenant's streams that nobody has read; 0 is any"),
    ("dead-letter-bytes", str(256 << 20), "bytes of a tenant's dead letters; 0 is any"),
    (
        "disk-floor",
        str(32 << 20),
        "take no events while the disk has fewer free bytes; what waits is delivered all the same",
    ),
    ("webhook-origin", "edn", "name by which sinks of CloudEvents know this network"),
    ("webhook-rate", "6000", "POSTs a minute that sinks are asked to consent to"),
    (
        "webhook-callback",
        "",
        "address of the dispatcher that sinks can call to consent later, such as https://edn.example.org",
    ),
    ("smtp-host", "", "relay for mailto: sinks"),
    ("smtp-port", "25", "its port"),
    ("smtp-from", "edn@localhost", "sender of mail"),
    ("smtp-user", "", "user at the relay"),
    ("smtp-password-file", "", "file with that user's password"),
)


def _add_delivery(add: Callable[..., object], given: Callable[[str, str | None], str | None]) -> None:
    for name, default, meaning in _DELIVERY:
        add(f"--{name}", default=given(name, default), help=f"{meaning} (%(default)s)")
    add(
        "--smtp-starttls",
        action="store_true",
        default=configuring.switch("smtp-starttls", given("smtp-starttls", None)),
        help="speak TLS with the relay",
    )


def _delivery(values: argparse.Namespace) -> dict[str, Any]:
    """How notifications are delivered."""

    def number(name: str, least: float = 0.0) -> float:
        text = getattr(values, name.replace("-", "_"))
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not least <= found < math.inf:
            raise CannotStart(f'--{name} "{text}": a number of {least:g} or more is right')
        return found

    try:
        steps = tuple(float(step) for step in values.retry_steps.split(","))
    except ValueError:
        steps = ()
    if not steps or not all(0 < step < math.inf for step in steps):
        raise CannotStart(f'--retry-steps "{values.retry_steps}": seconds with commas between are right')
    password = ""
    if values.smtp_password_file:
        try:
            password = Path(values.smtp_password_file).read_text().strip()
        except OSError as error:
            raise CannotStart(f"--smtp-password-file cannot be read: {error.strerror}") from None
    return {
        "concurrent_posts": int(number("concurrent-posts", 1)),
        "nameservers": _nameservers(values.nameservers),
        "attempt_seconds": number("attempt-seconds", 0.001),
        "batching": Batching(
            events=int(number("batch-events", 1)),
            bytes=int(number("batch-bytes", 1)),
            delay=number("batch-delay"),
        ),
        "retries": RetryPolicy(
            steps=steps,
            give_up_seconds=number("give-up-seconds"),
            refused_attempts=int(number("refused-attempts", 1)),
        ),
        "breaking": BreakerLimits(
            warn_seconds=number("warn-seconds"), disable_seconds=number("disable-seconds", 0.001)
        ),
        "attempts_kept": number("attempts-kept"),
        "dead_letters_kept": number("dead-letters-kept"),
        "disk_floor": int(number("disk-floor")),
        "limits": usage.Limits(
            paused=int(number("paused-bytes")),
            stream=int(number("stream-bytes")),
            dead=int(number("dead-letter-bytes")),
        ),
        "webhook_origin": _origin(values.webhook_origin),
        "webhook_rate": int(number("webhook-rate", 1)),
        "webhook_callback": _url("--webhook-callback", values.webhook_callback)
        if values.webhook_callback
        else "",
        "smtp_host": values.smtp_host,
        "smtp_port": _port("--smtp-port", values.smtp_port),
        "smtp_from": values.smtp_from,
        "smtp_starttls": values.smtp_starttls,
        "smtp_user": values.smtp_user,
        "smtp_password": password,
    }


def _origin(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,253}", text):
        raise CannotStart(f'--webhook-origin "{text}": a name such as edn.example.org is right')
    return text


def _port(flag: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > 65535:
        raise CannotStart(f'{flag} "{text}": 0 to 65535 are right')
    return int(text)


def _count(flag: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise CannotStart(f'{flag} must be an integer of 0 or more, got "{text}"')
    return int(text)


def _nice(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > 19:
        raise CannotStart(f'--nice "{text}": a whole number from 0 to 19 is right')
    return int(text)


def _location(text: str) -> tuple[float, ...]:
    try:
        place = tuple(float(part) for part in text.split(",")) if text.strip() else ()
    except ValueError:
        place = (math.nan,)
    if len(place) > 8 or not all(map(math.isfinite, place)):
        raise CannotStart(f'--location "{text}": up to 8 numbers are right, such as 48.1,11.6')
    return place


def _nameservers(text: str) -> tuple[str, ...]:
    servers = tuple(filter(None, (one.strip() for one in text.split(","))))
    for one in servers:
        host, colon, port = one.rpartition(":") if one.count(":") == 1 else (one, "", "")
        try:
            ipaddress.ip_address(host)
            valid = not colon or 0 < int(port) < 1 << 16
        except ValueError:
            valid = False
        if not valid:
            raise CannotStart(f'--nameservers must be IP addresses, with :port or without, got "{one}"')
    return servers


def _positive(flag: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise CannotStart(f'{flag} "{text}": a number above 0 is right')
    return number


def _url(flag: str, text: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment:
        raise CannotStart(f'{flag} "{text}" is no address; http://host:port is right')
    return text.rstrip("/")
