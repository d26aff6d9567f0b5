"""`edn delivery` and `edn dead-letters`: how notifications fare, and what can be done about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edn.cli.subscriptions import read_secret_file
from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected, say, show_json, show_table

app = typer.Typer(help="How a subscription's notifications fare.", no_args_is_help=True)
letters = typer.Typer(help="Notifications that were given up.", no_args_is_help=True)

SubscriptionArgument = Annotated[str, typer.Argument(metavar="ID", help="A subscription.")]
LetterArgument = Annotated[str, typer.Argument(metavar="ID", help="A dead letter, such as s1.42.")]


@app.command()
def show(id: SubscriptionArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """The state of its address, and what became of its notifications."""
    with connected(url) as client:
        state = client.subscription(id).delivery
    if json:
        show_json(state)
    elif state is None:
        typer.echo("its server does not answer")
    else:
        typer.echo(
            f"{state.state}" + (f" since {state.failing_since}: {state.reason}" if state.failures else "")
        )
        if state.warned is not None and state.disabled is None:
            typer.echo("it will be disabled if it goes on failing")
        typer.echo(
            f"{state.evaluated} evaluated, {state.matched} matched, {state.delivered} delivered, "
            f"{state.failed} given up"
        )


@app.command()
def attempts(id: SubscriptionArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """The last attempts at its address, the newest first."""
    with connected(url) as client:
        found = client.attempts(id)
    if json:
        show_json(found)
        return
    from rich.table import Table

    table = Table("time", "outcome", "status", "seconds", "notifications", "next attempt", "answer", box=None)
    for one in found:
        table.add_row(
            one.time,
            one.outcome,
            "" if one.status is None else str(one.status),
            f"{one.seconds:.3f}",
            str(one.notifications),
            one.next_attempt or "",
            (one.reason or one.answer)[:80],
        )
    show_table(table)


@app.command()
def example(id: SubscriptionArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Send a made-up event, marked as an example, and show how the sink answered."""
    with connected(url) as client:
        attempt = client.send_example(id)
    if json:
        show_json(attempt)
    else:
        said = attempt.status if attempt.status is not None else attempt.reason
        typer.echo(f"{said} after {attempt.seconds:.3f} s  {attempt.answer[:200]}".rstrip())


@app.command()
def enable(id: SubscriptionArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Send to its address again, at once, although it failed or was disabled."""
    with connected(url) as client:
        state = client.enable(id)
    if json:
        show_json(state)
    else:
        typer.echo(state.state)


@app.command("rotate-secret")
def rotate_secret(
    id: SubscriptionArgument,
    secret_file: Annotated[
        Path | None, typer.Option(help="Holds the new secret; without one, one is made.")
    ] = None,
    grace: Annotated[
        str | None, typer.Option(help="How long the secret before signs, too: PT1H; a day if not given.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Sign with another secret from now on. One that is made is shown only now."""
    with connected(url) as client:
        rotation = client.rotate_secret(id, secret=read_secret_file(secret_file), grace=grace)
    if json:
        show_json(rotation)
        return
    if secret_file is None and rotation.secret is not None:
        typer.echo(rotation.secret)
    say(f"the secret before signs, too, until {rotation.previous_until}")


@letters.command("list")
def list_letters(
    subscription: Annotated[str | None, typer.Option(help="Only those that name it.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for programs.")] = False,
) -> None:
    """List them, the oldest death first."""
    with connected(url) as client:
        found = client.dead_letters(subscription=subscription)
        if json:
            for one in found:
                show_json(one)
            return
        from rich.table import Table

        table = Table("id", "died", "to", "notifications", "attempts", "status", "reason", box=None)
        for one in found:
            status = "" if one.status is None else str(one.status)
            numbers = (str(one.notifications), str(one.attempts))
            table.add_row(one.id, one.died, one.url, *numbers, status, one.reason[:80])
    show_table(table)


@letters.command("show")
def show_letter(id: LetterArgument, url: UrlOption = DEFAULT_URL) -> None:
    """One of them, with what it would have said, as JSON."""
    with connected(url) as client:
        show_json(client.dead_letter(id))


@letters.command()
def resend(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Dead letters.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Queue some again, for whoever of their subscriptions still lives."""
    with connected(url) as client:
        for id in ids:
            queued = client.resend(id)
            if json:
                show_json(queued)
            else:
                typer.echo(f"{id}: {queued.notifications} notifications wait to be sent")


@letters.command()
def recover(
    id: SubscriptionArgument,
    since: Annotated[str, typer.Option(help="An instant (RFC 3339): what was given up then or later.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Queue all of a subscription's again since a time, for its present sink."""
    with connected(url) as client:
        queued = client.recover(id, since)
    if json:
        show_json(queued)
    else:
        typer.echo(f"{queued.letters} dead letters, {queued.notifications} notifications wait to be sent")
