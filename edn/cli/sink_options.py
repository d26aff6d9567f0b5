"""Options of a sink's settings: headers, credentials, retries, timeout, rate and order of deliveries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edn.cli.arguments import parse_json, parse_seconds, read_secret_file
from edn.tools.console import USAGE, fail

#: names of the settings, as arguments of the client
SETTINGS = ("headers", "credentials", "timeout", "retry", "rate", "ordered")

HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME:VALUE", help="Static header of every request. Repeatable."),
]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help='File with the credentials as JSON, such as {"type": "bearer", "token": "…"}; '
        "types: bearer, basic, api_key, oauth2, certificate.",
    ),
]
TimeoutOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Timeout of an attempt, such as 10s.")
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--retry-schedule",
        metavar="DURATIONS",
        help="Delays between attempts, such as 5s,1m,1h; the last one repeats. Requires --give-up.",
    ),
]
ExponentialOption = Annotated[
    str | None,
    typer.Option(
        "--retry-exponential",
        metavar="FIRST,FACTOR,LONGEST",
        help="Delays that grow by a factor, such as 1s,2,1h. Requires --give-up.",
    ),
]
GiveUpOption = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Age at which a failing notification becomes a dead letter."),
]
PermanentOption = Annotated[
    list[int] | None,
    typer.Option(
        "--permanent-status", metavar="STATUS", help="Status after which there is no retry. Repeatable."
    ),
]
RateOption = Annotated[
    float | None, typer.Option(help="Deliveries per second at most, per server that hosts the sink.")
]
OrderedOption = Annotated[
    bool | None,
    typer.Option(
        "--ordered/--unordered",
        help="Whether a failing notification holds back later ones. Default: ordered.",
    ),
]


def read_settings(
    *,
    header: list[str] | None,
    credentials_file: Path | None,
    timeout: str | None,
    schedule: str | None,
    exponential: str | None,
    give_up: str | None,
    permanent: list[int] | None,
    rate: float | None,
    ordered: bool | None,
) -> dict[str, Any]:
    """Returns the settings that were given, as arguments of `Client.subscribe` and `Client.change`."""
    given: dict[str, Any] = {
        "headers": None if not header else _headers(header),
        "credentials": _credentials(credentials_file),
        "timeout": None if timeout is None else parse_seconds(timeout, "--timeout"),
        "retry": _retry(schedule, exponential, give_up, permanent),
        "rate": rate,
        "ordered": ordered,
    }
    return {name: value for name, value in given.items() if value is not None}


def _headers(header: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in header:
        name, colon, value = one.partition(":")
        if not colon or not name.strip():
            fail(f'--header must be NAME:VALUE, got "{one}"', USAGE)
        if name.strip() in found:
            fail(f'--header "{name.strip()}" must be given once', USAGE)
        found[name.strip()] = value.strip()
    return found


def _credentials(file: Path | None) -> dict[str, Any] | None:
    text = read_secret_file(file)
    if text is None:
        return None
    found = parse_json(text, f"credentials in {file}")
    if not isinstance(found, dict):
        fail(f"credentials in {file} must be a JSON object with a type", USAGE)
    return found


def _retry(
    schedule: str | None, exponential: str | None, give_up: str | None, permanent: list[int] | None
) -> dict[str, Any] | None:
    retry: dict[str, Any] = {}
    if schedule is not None:
        retry["schedule"] = [parse_seconds(one.strip(), "--retry-schedule") for one in schedule.split(",")]
    if exponential is not None:
        first, *rest = parts = [one.strip() for one in exponential.split(",")]
        try:
            if len(parts) != 3:
                raise ValueError
            factor = float(rest[0])
        except ValueError:
            rule = "FIRST,FACTOR,LONGEST such as 1s,2,1h"
            fail(f'--retry-exponential must be {rule}, got "{exponential}"', USAGE)
        retry["exponential"] = {
            "first": parse_seconds(first, "--retry-exponential"),
            "factor": factor,
            "longest": parse_seconds(rest[1], "--retry-exponential"),
        }
    if give_up is not None:
        retry["give_up"] = parse_seconds(give_up, "--give-up")
    if permanent:
        retry["permanent"] = permanent
    return retry or None
