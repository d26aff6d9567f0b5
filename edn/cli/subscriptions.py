"""`edn subscribe`, `pause`, `resume`, `unsubscribe`, `subscriptions`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edn.cli.arguments import FILTER_HELP, read_filter, read_secret_file
from edn.cli.output import JsonLinesOption, show, show_rows
from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, compact, connected, say, show_json

IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of subscriptions.")]


def subscribe(
    topic: Annotated[
        str, typer.Argument(help="Topic, or subtree: 'stocks.**' is stocks and all topics below it.")
    ],
    filter: Annotated[str | None, typer.Argument(help=FILTER_HELP)] = None,
    *,
    to: Annotated[str, typer.Option("--to", help="URL that notifications are posted to.")],
    recipient: Annotated[str | None, typer.Option(help="Recipient behind the URL.")] = None,
    expires: Annotated[
        str | None, typer.Option(help="Expiry: a duration such as PT1H, or an RFC 3339 time.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="Id of the subscription; repeating it creates no second one.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Owner, to list subscriptions by.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Replay retained events from: now (none), an RFC 3339 time, or PT1H for an hour ago. "
            "Default: all of them.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None, typer.Option(help="File with the signing secret. Default: a generated one.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Subscribe a URL to the events that match a filter, and print the subscription's id.

    Every matching event that is accepted after this command returns is delivered.
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
    show(json, made, made.id)
    if not json and made.sink is not None and made.sink.secret is not None:
        say(f"signing secret: {made.sink.secret}\nStore it now, it is not shown again.")


def pause(ids: IdsArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Pause subscriptions. Their notifications are buffered in order."""
    with connected(url) as client:
        for id in ids:
            show(json, client.pause(id), f"paused {id}")


def resume(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the subscription.")],
    to: Annotated[str | None, typer.Option("--to", help="New URL for notifications.")] = None,
    recipient: Annotated[str | None, typer.Option(help="Recipient behind the new URL.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Resume a paused subscription. Its buffered notifications are delivered first."""
    with connected(url) as client:
        show(json, client.resume(id, url=to, recipient=recipient), f"resumed {id}")


def unsubscribe(ids: IdsArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """End subscriptions. Events accepted after this command returns are not delivered to them."""
    with connected(url) as client:
        for id in ids:
            client.unsubscribe(id)
            show(json, {"unsubscribed": id}, f"unsubscribed {id}")


def subscriptions(
    topic: Annotated[str | None, typer.Option(help="Only this topic or subtree.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only this owner.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonLinesOption = False,
) -> None:
    """List subscriptions."""
    with connected(url) as client:
        found = client.subscriptions(topic=topic, owner=owner)
        if json:
            for one in found:
                show_json(one)
            return
        rows = [
            (
                one.id,
                one.topic,
                "(everything)" if one.filter is None else compact(one.filter),
                one.sink.url if one.sink else "(stream)",
                (one.sink.recipient if one.sink else None) or "",
                one.server or "",
                one.state or "",
                one.expires or "never",
            )
            for one in found
        ]
    show_rows(("id", "topic", "filter", "to", "recipient", "server", "state", "expires"), rows)
