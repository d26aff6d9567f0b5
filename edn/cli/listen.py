"""`edn listen`: a receiver, or the reader of a stream, in the terminal; it can subscribe while it runs."""

from __future__ import annotations

import contextlib
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
    from edn.client.notifications import Notification
    from edn.client.receiver import Forward

#: expiry of the subscription: it ends by itself if the listener is killed
LEASE = "PT2M"
RENEW_SECONDS = 40.0


def listen(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="URL at which the network reaches this listener, if it is not on this machine.",
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Subscribe to this topic while listening.")] = None,
    filter: Annotated[str | None, typer.Option(help=FILTER_HELP)] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="Read a stream instead of listening: the network need not reach this machine."
        ),
    ] = False,
    id: Annotated[
        str | None, typer.Option("--id", help="Read the stream of this subscription. Implies --stream.")
    ] = None,
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
    with the same webhook-id is printed once. With --stream it reads from the network, which needs no way to
    this machine, and reconnects where it stopped.
    """
    if filter is not None and topic is None:
        fail("--filter requires --topic", USAGE)
    if id is not None and topic is not None:
        fail("give either --topic or --id", USAGE)
    if stream or id is not None:
        if advertise is not None or forward_to is not None:
            fail("--advertise and --forward-to require a webhook, not --stream", USAGE)
        if topic is None and id is None:
            fail("--stream requires --topic, or --id of a subscription without a URL", USAGE)
    elif advertise is None and topic is not None and host in ("0.0.0.0", "::"):
        fail(f"--host {host} requires --advertise URL: the network cannot send to {host}", USAGE)
    if advertise is not None and not advertise.startswith(("http://", "https://")):
        fail(f'--advertise must begin with http:// or https://, got "{advertise}"', USAGE)
    import asyncio

    wanted = read_filter(filter)
    with failing_readably():
        try:
            if stream or id is not None:
                asyncio.run(_read_stream(topic, wanted, id, count, url, json))
            else:
                asyncio.run(_listen(host, port, advertise, topic, wanted, count, forward_to, url, json))
        except OSError as error:
            fail(f"cannot listen on {host} port {port}: {error.strerror}", USAGE)


class _Printer:
    """Prints notifications; `enough` is set after `count` of them, and by signals."""

    def __init__(self, count: int | None, json: bool) -> None:
        import asyncio

        self._left = count
        self._json = json
        self.enough = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.enough.set)

    async def print(self, notification: Notification) -> None:
        if self._left == 0:
            return
        show(self._json, notification, readable_notification(notification))
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self.enough.set()


async def _listen(
    host: str,
    port: int,
    advertise: str | None,
    topic: str | None,
    filter: dict[str, Any] | str | None,
    count: int | None,
    forward_to: str | None,
    url: str,
    json: bool,
) -> None:
    from edn.client import AsyncClient
    from edn.client.receiver import Receiver

    printer = _Printer(count, json)
    async with (
        _forwarder(forward_to) as forward,
        Receiver(printer.print, host=host, port=port, forward=forward) as receiver,
    ):
        to = receiver.url if advertise is None else advertise
        known_as = "" if advertise is None else f", known to the network as {advertise}"
        forwarding = f", forwarding to {forward_to}" if forward_to else ""
        say(f"listening on {receiver.url}{known_as}{forwarding}")
        if topic is None:
            await printer.enough.wait()
            return
        async with AsyncClient(url) as client, _subscribed(client, topic, filter, to):
            await printer.enough.wait()


async def _read_stream(
    topic: str | None,
    filter: dict[str, Any] | str | None,
    id: str | None,
    count: int | None,
    url: str,
    json: bool,
) -> None:
    import asyncio

    from edn.client import AsyncClient

    printer = _Printer(count, json)

    async def read(client: AsyncClient, id: str) -> None:
        def report(reason: str) -> None:
            say(f"a gap in the stream: {reason}")

        async for notification in client.stream(id, on_gap=report):
            await printer.print(notification)
            if printer.enough.is_set():
                return
        say(f"subscription {id} has ended")

    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncClient(url))
        if topic is not None:
            id = await stack.enter_async_context(_subscribed(client, topic, filter, None))
        else:
            say(f"reading the stream of {id}; press Ctrl-C to stop")
        assert id is not None
        reading = asyncio.create_task(read(client, id))
        stopping = asyncio.create_task(printer.enough.wait())
        await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, reading):
            task.cancel()
        await asyncio.wait({reading, stopping})
        if not reading.cancelled():
            reading.result()  # raises if the network refuses


@asynccontextmanager
async def _subscribed(
    client: AsyncClient, topic: str, filter: dict[str, Any] | str | None, to: str | None
) -> AsyncIterator[str]:
    """Subscribes a URL, or a stream, renews the subscription and ends it at last; yields its id."""
    import asyncio

    made = await client.subscribe(topic, filter, url=to, expires=LEASE)
    if made.warning is not None:
        say(f"warning: {made.warning}")
    say(f"subscribed to {topic} as {made.id}; press Ctrl-C to unsubscribe and stop")
    resubscribe = functools.partial(client.subscribe, topic, filter, url=to, expires=LEASE, id=made.id)
    renewing = asyncio.create_task(_renew(client, made.id, resubscribe))
    try:
        yield made.id
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
