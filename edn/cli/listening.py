"""`edn listen`: a receiver in the terminal, that may subscribe for as long as it runs."""

from __future__ import annotations

import functools
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.cli.console import (
    DEFAULT_URL,
    USAGE,
    UrlOption,
    compact,
    fail,
    failing_readably,
    say,
    show_json,
)
from edn.cli.subscriptions import FILTER_HELP, read_filter

if TYPE_CHECKING:
    from edn.client import AsyncClient
    from edn.receiver import Notification

#: a listener that is killed leaves a subscription that ends by itself after so long
LEASE = "PT2M"
RENEW_SECONDS = 40.0
OWNER = "edn-listen"


def listen(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    topic: Annotated[str | None, typer.Option(help="Subscribe to this topic while listening.")] = None,
    filter: Annotated[str | None, typer.Option(help=FILTER_HELP)] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many notifications; without it, at Ctrl-C.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for programs.")] = False,
) -> None:
    """Receive notifications and print them.

    Without --topic it only listens: subscribe its address with `edn subscribe … --to`. Repeats of a POST
    (same webhook-id) are printed once.
    """
    if filter is not None and topic is None:
        fail("--filter belongs to --topic", USAGE)
    import asyncio

    with failing_readably():
        try:
            asyncio.run(_listen(host, port, topic, read_filter(filter), count, url, json))
        except OSError as error:
            fail(f"cannot listen on {host} port {port}: {error.strerror}", USAGE)


async def _listen(
    host: str,
    port: int,
    topic: str | None,
    filter: dict[str, Any] | str | None,
    count: int | None,
    url: str,
    json: bool,
) -> None:
    import asyncio

    from edn.client import AsyncClient
    from edn.receiver import Receiver

    enough = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, enough.set)
    left = count

    def show(notification: Notification) -> None:
        nonlocal left
        if left == 0:
            return
        if json:
            show_json(notification)
        else:
            typer.echo(readable_notification(notification))
        if left is not None:
            left -= 1
            if left == 0:
                enough.set()

    async with Receiver(show, host=host, port=port) as receiver:
        say(f"listening on {receiver.url}")
        if topic is None:
            await enough.wait()
            return
        async with AsyncClient(url) as client:
            made = await client.subscribe(topic, filter, url=receiver.url, expires=LEASE, owner=OWNER)
            say(f"subscribed to {topic} as {made.id}; Ctrl-C ends both")
            again = functools.partial(
                client.subscribe, topic, filter, url=receiver.url, expires=LEASE, owner=OWNER, id=made.id
            )
            renewing = asyncio.create_task(_renew(client, made.id, again))
            try:
                await enough.wait()
            finally:
                renewing.cancel()
                await _end(client, made.id)


async def _renew(client: AsyncClient, id: str, again: Callable[[], Awaitable[object]]) -> None:
    """Keep the subscription; `again` makes it anew when it ended while the network could not be reached."""
    import asyncio

    from edn.client import ClientError, ProblemError

    while True:
        await asyncio.sleep(RENEW_SECONDS)
        try:
            await client.renew(id, LEASE)
        except ProblemError as problem:
            if problem.status != 404:
                say(f"could not renew the subscription: {problem}")
                continue
            say("the subscription had ended; subscribing again")
            try:
                await again()
            except ClientError as error:
                say(f"could not subscribe again: {error}")
        except ClientError as error:
            say(f"could not renew the subscription: {error}")


async def _end(client: AsyncClient, id: str) -> None:
    from edn.client import ClientError

    try:
        await client.unsubscribe(id)
    except ClientError as error:
        say(f"could not unsubscribe, it will end by itself: {error}")


def readable_notification(notification: Notification) -> str:
    """One line: when, topic, attributes, for whom."""
    event = notification.event
    attributes = " ".join(f"{name}={compact(value)}" for name, value in event.attributes.items())
    recipients = ", ".join(match.recipient or match.subscription for match in notification.matches)
    return f"{event.time} {notification.topic}: {attributes}  → {recipients}"
