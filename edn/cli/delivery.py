"""`edn delivery` and `edn dead-letters`: the state of deliveries, attempts, secrets and dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edn.cli.arguments import read_secret_file
from edn.cli.output import JsonLinesOption, number, show, show_rows
from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected, say, show_json

app = typer.Typer(help="Show and repair the delivery of a subscription.", no_args_is_help=True)
letters = typer.Typer(help="List and requeue dead letters.", no_args_is_help=True)

SubscriptionArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the subscription.")]
LetterArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter, such as s1.42.")]


@app.command("show")
def show_delivery(id: SubscriptionArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show the state of its address and the counters of its notifications."""
    with connected(url) as client:
        state = client.subscription(id).delivery
    if state is None:
        show(json, state, "the server of the subscription does not answer")
        return
    lines = [state.state + (f" since {state.failing_since}: {state.reason}" if state.failures else "")]
    if state.warned is not None and state.disabled is None:
        lines.append("it will be disabled if further attempts fail")
    lines.append(
        f"{state.evaluated} evaluated, {state.matched} matched, {state.delivered} delivered, "
        f"{state.failed} dead letters"
    )
    show(json, state, *lines)


@app.command()
def attempts(id: SubscriptionArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """List the last attempts at its address, newest first."""
    with connected(url) as client:
        found = client.attempts(id)
    if json:
        show_json(found)
        return
    show_rows(
        ("time", "outcome", "status", "seconds", "notifications", "next attempt", "answer"),
        (
            (
                one.time,
                one.outcome,
                number(one.status, "d"),
                f"{one.seconds:.3f}",
                str(one.notifications),
                one.next_attempt or "",
                (one.reason or one.answer)[:80],
            )
            for one in found
        ),
    )


@app.command()
def example(id: SubscriptionArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Send an example event to its sink, and show the answer."""
    with connected(url) as client:
        attempt = client.send_example(id)
    answer = attempt.status if attempt.status is not None else attempt.reason
    show(json, attempt, f"{answer} after {attempt.seconds:.3f} s  {attempt.answer[:200]}".rstrip())


@app.command()
def enable(id: SubscriptionArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Enable its failing or disabled address, and deliver at once."""
    with connected(url) as client:
        state = client.enable(id)
    show(json, state, state.state)


@app.command("rotate-secret")
def rotate_secret(
    id: SubscriptionArgument,
    secret_file: Annotated[
        Path | None, typer.Option(help="File with the new secret. Default: a generated one.")
    ] = None,
    grace: Annotated[
        str | None, typer.Option(help="How long the previous secret also signs, such as PT1H. Default: P1D.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Rotate the signing secret of its address. A generated secret is shown only once."""
    with connected(url) as client:
        rotation = client.rotate_secret(id, secret=read_secret_file(secret_file), grace=grace)
    if json:
        show_json(rotation)
        return
    if secret_file is None and rotation.secret is not None:
        typer.echo(rotation.secret)
    say(f"the previous secret also signs until {rotation.previous_until}")


@letters.command("list")
def list_letters(
    subscription: Annotated[str | None, typer.Option(help="Only dead letters of this subscription.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonLinesOption = False,
) -> None:
    """List dead letters, oldest first."""
    with connected(url) as client:
        found = client.dead_letters(subscription=subscription)
        if json:
            for one in found:
                show_json(one)
            return
        rows = [
            (
                one.id,
                one.died,
                one.url,
                str(one.notifications),
                str(one.attempts),
                number(one.status, "d"),
                one.reason[:80],
            )
            for one in found
        ]
    show_rows(("id", "died", "to", "notifications", "attempts", "status", "reason"), rows)


@letters.command("show")
def show_letter(id: LetterArgument, url: UrlOption = DEFAULT_URL) -> None:
    """Print a dead letter with its body, as JSON."""
    with connected(url) as client:
        show_json(client.dead_letter(id))


@letters.command()
def resend(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of dead letters.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Requeue dead letters for those of their subscriptions that still exist."""
    with connected(url) as client:
        for id in ids:
            queued = client.resend(id)
            show(json, queued, f"{id}: {queued.notifications} notifications requeued")


@letters.command()
def recover(
    id: SubscriptionArgument,
    since: Annotated[str, typer.Option(help="Only dead letters of this RFC 3339 time or later.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Requeue all dead letters of a subscription since a time, for its current sink."""
    with connected(url) as client:
        queued = client.recover(id, since)
    show(json, queued, f"{queued.letters} dead letters requeued with {queued.notifications} notifications")
