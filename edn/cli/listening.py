"""`edn listen`: a receiver in the terminal, that may subscribe for as long as it runs."""

from __future__ import annotations

import functools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.cli.subscriptions import FILTER_HELP, read_filter
from edn.tools.console import (
    DEFAULT_URL,
    USAGE,
    UrlOption,
    compact,
    fail,
    failing_readably,
    say,
    show_json,
)

if TYPE_CHECKING:
    from edn.client import AsyncClient
    from edn.receiver import Forward, Notification

#: a listener that is killed leaves a subscription that ends by itself after so long
LEASE = "PT2M"
RENEW_SECONDS = 40.0


def listen(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    topic: Annotated[str | None, typer.Option(help="Subscribe to this topic while listening.")] = None,
    filter: Annotated[str | None, typer.Option(help=FILTER_HELP)] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many notifications; without it, at Ctrl-C.")
    ] = None,
    forward_to: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Pass every POST on to this address, as it came; its answer is the network's answer.",
        ),
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
            asyncio.run(_listen(host, port, topic, read_filter(filter), count, forward_to, url, json))
        except OSError as error:
            fail(f"cannot listen on {host} port {port}: {error.strerror}", USAGE)


async def _listen(
    host: str,
    port: int,
    topic: str | None,
    filter: dict[str, Any] | str | None,
    count: int | None,
    forward_to: str | None,
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

    async with (
        _forwarder(forward_to) as forward,
        Receiver(show, host=host, port=port, forward=forward) as receiver,
    ):
        say(f"listening on {receiver.url}" + (f", forwarding to {forward_to}" if forward_to else ""))
        if topic is None:
            await enough.wait()
            return
        async with AsyncClient(url) as client:
            made = await client.subscribe(topic, filter, url=receiver.url, expires=LEASE)
            say(f"subscribed to {topic} as {made.id}; Ctrl-C ends both")
            again = functools.partial(
                client.subscribe, topic, filter, url=receiver.url, expires=LEASE, id=made.id
            )
            renewing = asyncio.create_task(_renew(client, made.id, again))
            try:
                await enough.wait()
            finally:
                renewing.cancel()
                await _end(client, made.id)


#: header fields that belong to a connection, and not to what it carries
_OF_A_HOP = {b"host", b"connection", b"content-length", b"transfer-encoding", b"keep-alive"}


@asynccontextmanager
async def _forwarder(url: str | None) -> AsyncIterator[Forward | None]:
    """Passes a POST on, headers and body as they came, so that signatures stay good; the status it got."""
    if url is None:
        yield None
        return
    import httpx

    async with httpx.AsyncClient(timeout=14.0, trust_env=False) as client:

        async def forward(headers: list[tuple[bytes, bytes]], body: bytes) -> int:
            kept = [(name, value) for name, value in headers if name.lower() not in _OF_A_HOP]
            try:
                answer = await client.post(url, headers=kept, content=body)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                say(f"{url} does not answer: {str(error) or type(error).__name__}")
                return 502
            say(f"{url} answered {answer.status_code}")
            return answer.status_code

        yield forward


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
