"""`edn delivery` and `edn dead-letters`: the state of deliveries, attempts, secrets and dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edn.cli.arguments import read_secret_file
from edn.cli.output import JsonLinesOption, for_each, number, show, show_rows
from edn.formats.counts import counted
from edn.tools.console import DEFAULT_URL, REFUSED, JsonOption, UrlOption, connected, say, show_json

if TYPE_CHECKING:
    from edn.client import Client

app = typer.Typer(help="Show and repair the delivery of a subscription.", no_args_is_help=True)
letters = typer.Typer(help="List and requeue dead letters.", no_args_is_help=True)

SubscriptionArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the subscription.")]
LetterArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter, such as s1.42.")]


@app.command("show")
def show_delivery(id: SubscriptionArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show the state of its address and the counters of its notifications."""
    with connected(url) as client:
        found = client.subscription(id)
    state = found.delivery
    if state is None:
        show(json, state, "the server of the subscription does not answer")
        raise typer.Exit(REFUSED)
    lines = [state.state + (f" since {state.failing_since}: {state.reason}" if state.failures else "")]
    if found.state == "paused":
        lines.append(f"paused; {state.buffered_bytes:,} bytes of notifications are buffered")
    elif found.sink is None:
        lines.append(f"a stream; {state.buffered_bytes:,} bytes of events are unread")
    if state.disabled is not None:
        lines.append(f"disabled since {state.disabled_since}; enable it with `edn delivery enable {id}`")
    elif state.next_attempt is not None:
        lines.append(f"next attempt {state.next_attempt}")
    if state.consent is not None:
        lines.append(f"consent {state.consent}")
    if state.warned is not None and state.disabled is None:
        lines.append("it will be disabled if further attempts fail")
    lines.append(
        f"{state.evaluated} evaluated, {state.matched} matched, {state.delivered} delivered, "
        f"{counted(state.failed, 'dead letter')}"
    )
    if state.dropped:
        lines.append(
            f"{state.dropped:,} dropped at the limit {state.dropped_limit}, last {state.dropped_last}"
        )
    show(json, state, *lines)


@app.command()
def attempts(
    id: SubscriptionArgument,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="Print the bodies of requests and answers.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """List the last attempts at its address, newest first."""
    with connected(url) as client:
        found = client.attempts(id)
    if json:
        show_json(found)
        return
    if bodies:
        for one in found:
            typer.echo(f"{one.time} {one.outcome} {one.webhook_id} {one.status or one.reason or ''}".rstrip())
            typer.echo(f"  request: {'not in memory any more' if one.request is None else one.request}")
            if one.answer:
                typer.echo(f"  answer: {one.answer}")
        return
    show_rows(
        ("time", "outcome", "status", "seconds", "notifications", "next attempt", "reason", "answer"),
        (
            (
                one.time,
                one.outcome,
                number(one.status, "d"),
                f"{one.seconds:.3f}",
                str(one.notifications),
                one.next_attempt or "",
                (one.reason or "")[:80],
                _one_line(one.answer),
            )
            for one in found
        ),
        none="there was no attempt yet",
    )


def _one_line(answer: str) -> str:
    """Returns the beginning of a receiver's answer on one line."""
    text = " ".join(answer.split())
    return text if len(text) <= 100 else f"{text[:99]}…"


@app.command()
def example(id: SubscriptionArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Send an example event to its sink, and show the answer. Exit code 1 unless the sink accepts it."""
    with connected(url) as client:
        attempt = client.send_example(id)
    accepted = attempt.status is not None and 200 <= attempt.status < 300
    answer = attempt.status if attempt.status is not None else attempt.reason
    verdict = "accepted" if accepted else "failed"
    show(
        json,
        attempt,
        f"{verdict}: {answer} after {attempt.seconds:.3f} s  {_one_line(attempt.answer)}".rstrip(),
    )
    if not accepted:
        raise typer.Exit(REFUSED)


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
        str | None, typer.Option(help="How long the previous secret also signs, such as 1h. Default: 1d.")
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
    say(f"the previous secret stays valid until {rotation.previous_until}")


@letters.command("list")
def list_letters(
    subscription: Annotated[str | None, typer.Option(help="Only dead letters of this subscription.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonLinesOption = False,
) -> None:
    """List dead letters, oldest first. `edn dead-letters show` prints one with its body."""
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
                _few(one.subscriptions or []),
                one.url,
                str(one.notifications),
                str(one.attempts),
                number(one.status, "d"),
                one.reason[:80],
            )
            for one in found
        ]
    headings = ("id", "died", "subscription", "to", "notifications", "attempts", "status", "reason")
    show_rows(headings, rows, none="there are no dead letters")


def _few(ids: list[str]) -> str:
    return ids[0] + (f" and {len(ids) - 1} more" if len(ids) > 1 else "") if ids else ""


@letters.command("show")
def show_letter(id: LetterArgument, url: UrlOption = DEFAULT_URL) -> None:
    """Print a dead letter with its subscriptions and its body, as JSON."""
    with connected(url) as client:
        show_json(client.dead_letter(id))


@letters.command()
def resend(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of dead letters.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Requeue dead letters for those of their subscriptions that still exist."""

    def requeue(client: Client, id: str) -> None:
        queued = client.resend(id)
        show(json, queued, f"{id}: {counted(queued.notifications, 'notification')} requeued")

    with connected(url) as client:
        for_each(ids, lambda id: requeue(client, id))


@letters.command()
def recover(
    id: SubscriptionArgument,
    since: Annotated[
        str, typer.Option(help="Only dead letters since this time: RFC 3339, or 1h for an hour ago.")
    ],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Requeue all dead letters of a subscription since a time, for its current sink."""
    with connected(url) as client:
        queued = client.recover(id, since)
    show(
        json,
        queued,
        f"{counted(queued.letters, 'dead letter')} requeued, "
        f"with {counted(queued.notifications, 'notification')}",
    )
