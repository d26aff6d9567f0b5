"""`edn trace`: one event through dispatcher, servers, subscriptions and attempts, with times."""

from __future__ import annotations

import math
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.cli.arguments import parse_event, parse_seconds
from edn.cli.output import show
from edn.tools.console import DEFAULT_URL, REFUSED, USAGE, JsonOption, UrlOption, connected, fail, say

if TYPE_CHECKING:
    from edn.client import Client

#: seconds between two requests for the state of the event
POLL_SECONDS = 0.1


def trace(
    topic: Annotated[str, typer.Argument(help="Topic of the event.")],
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="EVENT | NAME=VALUE...",
            help="Id of a recent event, or the attributes of an event to publish and trace.",
        ),
    ],
    wait: Annotated[
        str, typer.Option(help="How long to wait until all deliveries have ended: seconds, or 1m.")
    ] = "5s",
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Trace one event through the network: edn trace stocks symbol=GE price=32.5

    Exit code 1 if a delivery has not ended in time. Each process reports times of its own clock. An attempt
    is shown at the time when it began.
    """
    seconds = parse_seconds(wait, "--wait")
    with connected(url) as client:
        if len(what) == 1 and "=" not in what[0]:
            id = what[0]
        elif all("=" in part for part in what):
            id = client.publish(topic, parse_event(what, client.topic(topic).attributes))
        else:
            fail("give the id of one event, or attributes as NAME=VALUE", USAGE)
        found = _await_deliveries(client, topic, id, seconds)
    show(json, found, *_lines(found))
    if not is_delivered(found):
        say(f"not all deliveries ended within {seconds:g} s")
        raise typer.Exit(REFUSED)


def _await_deliveries(client: Client, topic: str, id: str, wait: float) -> dict[str, Any]:
    """Returns the trace when all deliveries have ended, or the latest trace at the timeout."""
    until = time.monotonic() + wait
    while True:
        found = client.follow(topic, id)
        if is_delivered(found) or time.monotonic() >= until:
            return found
        time.sleep(POLL_SECONDS)


def is_delivered(trace: dict[str, Any]) -> bool:
    """Whether every server has applied the event, and every match has had its last attempt."""
    return all(
        server["taken"] is not None
        and all(
            match["attempts"] and match["attempts"][-1]["outcome"] != "again" for match in server["matches"]
        )
        for server in trace["servers"]
    )


def _lines(trace: dict[str, Any]) -> list[str]:
    accepted = datetime.fromisoformat(trace["accepted"])

    steps: list[tuple[float, str]] = []

    def add(at: str | None, who: str, what: str) -> None:
        """Adds a step; one without a time is shown last."""
        if at is None:
            steps.append((math.inf, f"{'':10}  {who:<12} {what}"))
            return
        delay = (datetime.fromisoformat(at) - accepted).total_seconds()
        steps.append((delay, f"{delay * 1e3:+8.1f} ms  {who:<12} {what}"))

    sent = ", ".join(server["server"] for server in trace["servers"]) or "no server"
    skipped = f", not to {', '.join(trace['not_sent_to'])}" if trace["not_sent_to"] else ""
    heading = f"event {trace['id']} of {trace['topic']}, accepted {trace['accepted']}" + (
        f", trace {trace['traceparent']}" if trace["traceparent"] else ""
    )
    add(trace["accepted"], "dispatcher", f"offset {trace['offset']}, sent to {sent}{skipped}")
    for server in trace["servers"]:
        name, matches = server["server"], server["matches"]
        if server["failure"]:
            add(None, name, f"does not answer: {server['failure']}")
            continue
        what = f"{len(matches)} matched" if matches else "nothing matched: a false positive"
        add(server["taken"], name, what if server["taken"] else "has not applied it yet")
        for match in matches:
            subscription = match["subscription"] or "(ended)"
            for attempt in match["attempts"]:
                answer = attempt["status"] if attempt["status"] is not None else attempt["reason"]
                what = f"{subscription}: {attempt['outcome']} ({answer}, {attempt['seconds'] * 1e3:.1f} ms)"
                add(attempt["time"], name, what)
            if not match["attempts"]:
                add(None, name, f"{subscription}: waiting or paused")
    # Stable: steps of one time stay in the order of cause and effect.
    return [heading, *(text for _, text in sorted(steps, key=lambda step: step[0]))]
