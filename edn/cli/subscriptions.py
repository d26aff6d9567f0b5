"""`edn subscribe`, `pause`, `resume`, `unsubscribe`, `subscriptions`; how filters and secrets are given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edn.tools.console import (
    DEFAULT_URL,
    USAGE,
    JsonOption,
    UrlOption,
    compact,
    connected,
    fail,
    say,
    show_json,
    show_table,
)

FILTER_HELP = (
    """Which events: text such as 'symbol == "GE" and price > 30', or JSON such as """
    """'{"symbol": "GE", "price": {"gt": 30}}'; without one, all."""
)


def read_filter(given: str | None) -> dict[str, Any] | str | None:
    """A filter from the command line: an object if it looks like one, else text for the network to parse."""
    if given is None or not given.lstrip().startswith("{"):
        return given
    import json

    try:
        parsed: dict[str, Any] = json.loads(given)
    except ValueError as error:
        fail(f"the filter begins like JSON but is none: {error}", USAGE)
    return parsed


def read_secret_file(file: Path | None) -> str | None:
    """A secret is not for the command line, where everybody on the machine can read it."""
    if file is None:
        return None
    try:
        return file.read_text().strip()
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}", USAGE)


def subscribe(
    topic: Annotated[
        str, typer.Argument(help="Name of the topic, or a subtree: 'stocks.**' is stocks and all below it.")
    ],
    filter: Annotated[str | None, typer.Argument(help=FILTER_HELP)] = None,
    *,
    to: Annotated[str, typer.Option("--to", help="Address that notifications are posted to.")],
    recipient: Annotated[str | None, typer.Option(help="Who is meant behind that address.")] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it ends: a duration such as PT1H, or an instant (RFC 3339).")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="Your own id; subscribing with it again changes nothing.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="A name to find your subscriptions by.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Where it begins: now, an instant, or PT1H for an hour ago; else at all "
            "that is still available.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(help="Holds the secret that notifications are signed with; without one, one is made."),
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Subscribe an address to the events that a filter matches; prints the subscription's id.

    Every event that is accepted after this returns is notified, if it matches.
    """
    with connected(url) as client:
        made = client.subscribe(
            topic,
            read_filter(filter),
            url=to,
            recipient=recipient,
            expires=expires,
            id=id,
            owner=owner,
            since=since,
            secret=read_secret_file(secret_file),
        )
    if json:
        show_json(made)
        return
    typer.echo(made.id)
    if made.sink is not None and made.sink.secret is not None:
        say(f"notifications are signed with {made.sink.secret}\nThis is shown only now: keep it.")


def pause(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Subscriptions to pause.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Keep the notifications of subscriptions, in order, instead of sending them."""
    with connected(url) as client:
        for id in ids:
            paused = client.pause(id)
            if json:
                show_json(paused)
            else:
                typer.echo(f"paused {id}")


def resume(
    id: Annotated[str, typer.Argument(metavar="ID", help="The subscription.")],
    to: Annotated[str | None, typer.Option("--to", help="Another address to go on at.")] = None,
    recipient: Annotated[str | None, typer.Option(help="Who is meant behind that address.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Send what a paused subscription kept, and go on."""
    with connected(url) as client:
        resumed = client.resume(id, url=to, recipient=recipient)
    if json:
        show_json(resumed)
    else:
        typer.echo(f"resumed {id}")


def unsubscribe(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Subscriptions to cancel.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Cancel subscriptions. Events accepted after this returns are not notified any more."""
    with connected(url) as client:
        for id in ids:
            client.unsubscribe(id)
            if json:
                show_json({"unsubscribed": id})
            else:
                typer.echo(f"unsubscribed {id}")


def subscriptions(
    topic: Annotated[
        str | None, typer.Option(help="Only those of this topic, or of anything in this subtree.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only those of this owner.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for programs.")] = False,
) -> None:
    """List subscriptions."""
    with connected(url) as client:
        found = client.subscriptions(topic=topic, owner=owner)
        if json:
            for one in found:
                show_json(one)
            return
        from rich.table import Table

        table = Table("id", "topic", "filter", "to", "recipient", "server", "state", "expires", box=None)
        for one in found:
            table.add_row(
                one.id,
                one.topic,
                "(everything)" if one.filter is None else compact(one.filter),
                one.sink.url if one.sink else "(stream)",
                (one.sink.recipient if one.sink else None) or "",
                one.server or "",
                one.state or "",
                one.expires or "never",
            )
    show_table(table)
