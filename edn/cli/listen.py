"""`edn listen`: a receiver in the terminal that can subscribe while it runs."""

from __future__ import annotations

import functools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.cli.arguments import FILTER_HELP, read_filter
from edn.cli.output import JsonLinesOption, show
from edn.tools.console import DEFAULT_URL, USAGE, UrlOption, compact, fail, failing_readably, say

if TYPE_CHECKING:
    from edn.client import AsyncClient
    from edn.client.receiver import Forward, Notification

#: expiry of the subscription: it ends by itself if the listener is killed
LEASE = "PT2M"
RENEW_SECONDS = 40.0


def listen(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    topic: Annotated[str | None, typer.Option(help="Subscribe to this topic while listening.")] = None,
    filter: Annotated[str | None, typer.Option(help=FILTER_HELP)] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many notifications.")] = None,
    forward_to: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Forward every POST unchanged to this URL, and return its status to the network.",
        ),
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonLinesOption = False,
) -> None:
    """Receive notifications and print them.

    Without --topic it only listens: subscribe its URL with `edn subscribe … --to`. A POST that is repeated
    with the same webhook-id is printed once.
    """
    if filter is not None and topic is None:
        fail("--filter requires --topic", USAGE)
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
    from edn.client.receiver import Receiver

    enough = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, enough.set)
    left = count

    async def print_notification(notification: Notification) -> None:
        nonlocal left
        if left == 0:
            return
        show(json, notification, readable_notification(notification))
        if left is not None:
            left -= 1
            if left == 0:
                enough.set()

    async with (
        _forwarder(forward_to) as forward,
        Receiver(print_notification, host=host, port=port, forward=forward) as receiver,
    ):
        say(f"listening on {receiver.url}" + (f", forwarding to {forward_to}" if forward_to else ""))
        if topic is None:
            await enough.wait()
            return
        async with AsyncClient(url) as client:
            made = await client.subscribe(topic, filter, url=receiver.url, expires=LEASE)
            say(f"subscribed to {topic} as {made.id}; press Ctrl-C to unsubscribe and stop")
            resubscribe = functools.partial(
                client.subscribe, topic, filter, url=receiver.url, expires=LEASE, id=made.id
            )
            renewing = asyncio.create_task(_renew(client, made.id, resubscribe))
            try:
                await enough.wait()
            finally:
                renewing.cancel()
                await _unsubscribe(client, made.id)


#: characters of a forwarded body that are shown
_SHOWN = 500
#: headers of a connection, not of the forwarded request
_HOP_BY_HOP = {b"host", b"connection", b"content-length", b"transfer-encoding", b"keep-alive"}


@asynccontextmanager
async def _forwarder(url: str | None) -> AsyncIterator[Forward | None]:
    """Yields a function that forwards a POST unchanged, so that signatures stay valid."""
    if url is None:
        yield None
        return
    import httpx

    async with httpx.AsyncClient(timeout=14.0, trust_env=False) as client:

        async def forward(headers: list[tuple[bytes, bytes]], body: bytes) -> int:
            forwarded = [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]
            try:
                answer = await client.post(url, headers=forwarded, content=body)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                say(f"{url} does not answer: {str(error) or type(error).__name__}")
                return 502
            say(f"{body.decode('utf-8', 'replace')[:_SHOWN]}\n→ {url} answered {answer.status_code}")
            return answer.status_code

        yield forward


async def _renew(client: AsyncClient, id: str, resubscribe: Callable[[], Awaitable[object]]) -> None:
    """Renews the subscription until cancelled; subscribes again if it expired while offline."""
    import asyncio

    from edn.client import ClientError, ProblemError

    while True:
        await asyncio.sleep(RENEW_SECONDS)
        try:
            await client.renew(id, LEASE)
        except ProblemError as problem:
            if problem.status != 404:
                say(f"cannot renew the subscription: {problem}")
                continue
            say("the subscription has ended; subscribing again")
            try:
                await resubscribe()
            except ClientError as error:
                say(f"cannot subscribe again: {error}")
        except ClientError as error:
            say(f"cannot renew the subscription: {error}")


async def _unsubscribe(client: AsyncClient, id: str) -> None:
    from edn.client import ClientError

    try:
        await client.unsubscribe(id)
        say(f"unsubscribed {id}")
    except ClientError as error:
        say(f"cannot unsubscribe: {error}; the subscription expires by itself")


def readable_notification(notification: Notification) -> str:
    """Formats a notification as one line: time, topic, attributes, recipients."""
    event = notification.event
    attributes = " ".join(f"{name}={compact(value)}" for name, value in event.attributes.items())
    recipients = ", ".join(match.recipient or match.subscription for match in notification.matches)
    return f"{event.time} {notification.topic}: {attributes}  → {recipients}"
