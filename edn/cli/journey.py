"""`edn trace`: one event through dispatcher, servers, subscriptions and attempts, with times."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.cli.publishing import from_pairs
from edn.tools.console import (
    DEFAULT_URL,
    REFUSED,
    USAGE,
    JsonOption,
    UrlOption,
    connected,
    fail,
    say,
    show_json,
)

if TYPE_CHECKING:
    from edn.client import Client

#: seconds between two looks at an event that is still on its way
LOOK_SECONDS = 0.1


def trace(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="EVENT | NAME=VALUE...",
            help="Id of a recent event; or attributes of one, which is published and followed.",
        ),
    ],
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until everybody whom it matches is told.")
    ] = 5.0,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Follow one event: edn trace stocks symbol=GE price=32.5

    Exit code 1 if somebody whom it matches was not told in time. Times are of the machine that tells them.
    """
    with connected(url) as client:
        if len(what) == 1 and "=" not in what[0]:
            id = what[0]
        elif all("=" in part for part in what):
            id = client.publish(topic, from_pairs(what, client.topic(topic).attributes))
        else:
            fail("give one event's id, or attributes as NAME=VALUE", USAGE)
        found = _settled(client, topic, id, wait)
    if json:
        show_json(found)
    else:
        for line in _lines(found):
            typer.echo(line)
    if not told(found):
        say(f"not everybody was told within {wait:g} s")
        raise typer.Exit(REFUSED)


def _settled(client: Client, topic: str, id: str, wait: float) -> dict[str, Any]:
    """The journey once it is over, or as far as it got in time."""
    until = time.monotonic() + wait
    while True:
        found = client.follow(topic, id)
        if told(found) or time.monotonic() >= until:
            return found
        time.sleep(LOOK_SECONDS)


def told(journey: dict[str, Any]) -> bool:
    """Whether every server has taken the event, and every match has its last attempt behind it."""
    return all(
        server["taken"] is not None
        and all(
            match["attempts"] and match["attempts"][-1]["outcome"] != "again" for match in server["matches"]
        )
        for server in journey["servers"]
    )


def _lines(journey: dict[str, Any]) -> list[str]:
    accepted = _instant(journey["accepted"])

    def line(at: str | None, who: str, what: str) -> str:
        since = "          " if at is None else f"{(_instant(at) - accepted) * 1e3:+8.1f} ms"
        return f"{since}  {who:<12} {what}"

    sent = ", ".join(server["server"] for server in journey["servers"]) or "no server"
    left = f", not to {', '.join(journey['not_sent_to'])}" if journey["not_sent_to"] else ""
    lines = [
        f"event {journey['id']} of {journey['topic']}, accepted {journey['accepted']}"
        + (f", trace {journey['traceparent']}" if journey["traceparent"] else ""),
        line(journey["accepted"], "dispatcher", f"offset {journey['offset']}, sent to {sent}{left}"),
    ]
    for server in journey["servers"]:
        name, matches = server["server"], server["matches"]
        if server["failure"]:
            lines.append(line(None, name, f"does not answer: {server['failure']}"))
            continue
        what = f"{len(matches)} matched" if matches else "nothing matched: a false positive"
        lines.append(line(server["taken"], name, what if server["taken"] else "has not taken it yet"))
        for match in matches:
            whom = match["subscription"] or "(ended)"
            for attempt in match["attempts"]:
                said = attempt["status"] if attempt["status"] is not None else attempt["reason"]
                what = f"{whom}: {attempt['outcome']} ({said}, {attempt['seconds'] * 1e3:.1f} ms)"
                lines.append(line(attempt["time"], name, what))
            if not match["attempts"]:
                lines.append(line(None, name, f"{whom}: waits, or is paused"))
    return lines


def _instant(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()
