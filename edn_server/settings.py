"""What an operator can set: by flags, by `EDN_SERVER_*`, by `EDN_*` in the environment, else by default."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from edn.process import CannotStart, read_secret

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"", "0", "false", "no", "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    #: unique in the network, and the same over restarts
    id: str
    #: folder of the database; made when missing
    data: Path
    #: where the dispatcher is
    dispatcher: str
    #: shared by the network's processes; every internal call carries it
    secret: str
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
    #: bytes of one frame or store request
    body_limit: int = 64 << 20
    #: addresses that are called at the same time
    concurrent_posts: int = 64
    #: seconds between two looks at what the other servers host
    exchange_seconds: float = 5.0
    #: seconds between two looks for rows that nothing needs any more
    collect_seconds: float = 5.0


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """The settings, or `CannotStart`; for an unknown flag, and `--help`, argparse prints and exits."""

    def given(name: str, default: str | None = None) -> str | None:
        key = name.upper().replace("-", "_")
        return environment.get(f"EDN_SERVER_{key}", environment.get(f"EDN_{key}", default))

    parser = argparse.ArgumentParser(
        prog="python -m edn_server",
        description="Host subscriptions, match the dispatcher's stream and notify.",
        epilog="Each flag can be given in the environment: --secret-file as EDN_SERVER_SECRET_FILE or "
        "EDN_SECRET_FILE.",
    )
    add = parser.add_argument
    add("--id", default=given("id"), help="this server's name in the network")
    add("--data", default=given("data"), metavar="DIR", help="its data folder")
    add("--dispatcher", default=given("dispatcher"), metavar="URL", help="where the dispatcher is")
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
        default=_flag("allow-loopback-sinks", given("allow-loopback-sinks", "") or ""),
        help="notify loopback addresses, over plain http too: for development only",
    )
    values = parser.parse_args(arguments)
    for name in ("id", "data", "dispatcher", "secret_file"):
        if not getattr(values, name):
            flag = "--" + name.replace("_", "-")
            raise CannotStart(f"{flag} is required (or EDN_SERVER_{name.upper()} in the environment)")
    if not _ID.match(values.id):
        raise CannotStart(f'--id "{values.id}": up to 64 of A-Z a-z 0-9 _ . - are right')
    return Settings(
        id=values.id,
        data=Path(values.data),
        dispatcher=_url("--dispatcher", values.dispatcher),
        secret=read_secret(Path(values.secret_file)),
        host=values.host,
        port=_port(values.port),
        advertise=_url("--advertise", values.advertise) if values.advertise else None,
        location=_location(values.location),
        distance=_positive("--distance", values.distance),
        exchange_seconds=_positive("--exchange-seconds", values.exchange_seconds),
        allow_loopback_sinks=values.allow_loopback_sinks,
    )


def _flag(name: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise CannotStart(f'{name} is "{text}" in the environment; true or false is right')


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > 65535:
        raise CannotStart(f'--port "{text}": 0 to 65535 are right')
    return int(text)


def _location(text: str) -> tuple[float, ...]:
    try:
        place = tuple(float(part) for part in text.split(",")) if text.strip() else ()
    except ValueError:
        place = (math.nan,)
    if len(place) > 8 or not all(map(math.isfinite, place)):
        raise CannotStart(f'--location "{text}": up to 8 numbers are right, such as 48.1,11.6')
    return place


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
