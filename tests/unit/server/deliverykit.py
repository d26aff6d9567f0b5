"""Delivery to a real HTTP receiver on loopback, from a real data folder."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serverkit import Kit, activate, item

from edn_server.config import Settings
from edn_server.delivery.notifier import Notifier
from edn_server.observe.delivery_status import DeliveryStatus
from edn_server.policies import Batching, BreakerLimits, RetryPolicy
from edn_server.sinks.base import Sink, Sinks
from edn_server.sinks.http import HttpSink
from edn_server.sinks.mail import MailSink
from edn_server.subscriptions.view import RegistryView

EVENT = {"symbol": "GE", "price": 5}
#: what a receiver answers that wants none of it, and a policy that gives up then
REFUSED = "400 No\r\ncontent-type: text/plain\r\n"
ONE = RetryPolicy(steps=(0.001,), refused_attempts=1)


@dataclass
class Post:
    path: str
    headers: dict[str, str]
    raw: bytes
    status: int = 0

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


@dataclass
class Receiver:
    """Answers each path from its list of statuses, then 204; remembers every POST."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    posts: list[Post] = field(default_factory=list)
    #: paths that are answered only once their event is set
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    most_in_flight: dict[str, int] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[Post]:
        return [post for post in self.posts if post.path == path]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.arrived.clear()
                await self.arrived.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                request, *lines = head.decode().strip().split("\r\n")
                path = request.split(" ")[1]
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers["content-length"]))
                self.in_flight[path] = self.in_flight.get(path, 0) + 1
                self.most_in_flight[path] = max(self.most_in_flight.get(path, 0), self.in_flight[path])
                post = Post(path, headers, body)
                self.posts.append(post)
                self.arrived.set()
                if path in self.held:
                    await self.held[path].wait()
                answer = self.answers[path].pop(0) if self.answers.get(path) else "204 No Content\r\n"
                self.in_flight[path] -= 1
                post.status = int(answer[:3])
                writer.write(f"HTTP/1.1 {answer}content-length: 0\r\n\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


#: attempts follow each other at once, and each row is a POST of its own
SETTINGS: dict[str, Any] = {
    "id": "s1",
    "data": Path("/nowhere"),
    "dispatcher": ("http://127.0.0.1:1",),
    "secret": "a secret of the tests",
    "allow_loopback_sinks": True,
    "concurrent_posts": 32,
    "retry_steps": (0.001,),
    "batch_events": 1,
}


def settings(
    retries: RetryPolicy | None = None,
    batching: Batching | None = None,
    breaking: BreakerLimits | None = None,
    **changes: Any,
) -> Settings:
    given = SETTINGS | changes
    if retries is not None:
        given |= {
            "retry_steps": retries.steps,
            "give_up_seconds": retries.give_up_seconds,
            "refused_attempts": retries.refused_attempts,
        }
    if batching is not None:
        given |= {f"batch_{name}": value for name, value in dataclasses.asdict(batching).items()}
    return Settings(**given, **({} if breaking is None else dataclasses.asdict(breaking)))


@asynccontextmanager
async def notifying(
    kit: Kit,
    further: dict[str, Callable[[Settings], Sink]] | None = None,
    may_send: Callable[[], bool] = lambda: True,
    **changes: Any,
) -> AsyncIterator[Notifier]:
    """`further`: sinks of other schemes; `may_send`: whether the process owns its outbox."""
    given = settings(**changes)
    makers = {"http": HttpSink, "https": HttpSink, "mailto": MailSink, **(further or {})}
    async with Sinks(given, makers) as sinks:
        notifier = Notifier(
            view=RegistryView(kit.registry),
            writer=kit.writer,
            reader=kit.reader(),
            sinks=sinks,
            key="0" * 32,
            settings=given,
            may_send=may_send,
        )
        await notifier.start(again=kit.epoch > 1)
        try:
            yield notifier
        finally:
            await notifier.stop()


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(30_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come to that within half a minute")


def run(scenario: Callable[[Receiver], Awaitable[None]]) -> None:
    async def main() -> None:
        async with receiving() as receiver, asyncio.timeout(60):
            await scenario(receiver)

    asyncio.run(main())


def fill(kit: Kit, *urls: str, rows: int = 1) -> None:
    """As many rows for each address, an event a row."""
    names = [f"s{index}" for index in range(len(urls))]
    kit.store(*(item(name, url=url) for name, url in zip(names, urls, strict=True)))
    kit.frame(0, 1, activate(1, *((name, 1) for name in names)))
    for row in range(rows):
        kit.frame(1 + row, 2 + row, events=[(2 + row, EVENT)])


@asynccontextmanager
async def asking(
    kit: Kit, further: dict[str, Callable[[Settings], Sink]] | None = None, **changes: Any
) -> AsyncIterator[tuple[Notifier, DeliveryStatus]]:
    given = {"retries": ONE, **changes}
    async with notifying(kit, further, **given) as notifier:
        evidence = DeliveryStatus(
            view=RegistryView(kit.registry),
            notifier=notifier,
            writer=kit.writer,
            reader=kit.reader(),
            settings=settings(**given),
        )
        try:
            yield notifier, evidence
        finally:
            evidence.close()
