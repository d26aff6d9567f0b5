"""The sample workload of `edn up --demo`: an invented market, some dozens of subscriptions, a live view.

Quotes follow a random walk, about twenty per second. The subscriptions notify a receiver in this process, so
every notification shown was published, routed, matched, posted and received. Memory is bounded. The
subscriptions expire soon after the demo is killed.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edn.client import AsyncClient, ClientError, NewSubscription, Server
from edn.client.receiver import Notification, Receiver

if TYPE_CHECKING:
    from rich.console import RenderableType

TOPIC = "stocks"
ATTRIBUTES = {
    "symbol": "string",
    "venue": "string",
    "price": "number",
    "change": "number",
    "volume": "integer",
    "halted": "boolean",
}
OWNER = "edn-demo"
LEASE = "PT10M"
RENEW_SECONDS = 120.0
QUOTES_A_BATCH = 5
BATCH_SECONDS = 0.25
LINE_SECONDS = 5.0
SHOWN = 8

#: symbol → venue and initial price
MARKET = {
    "GE": ("NYSE", 31.0),
    "IBM": ("NYSE", 142.0),
    "KO": ("NYSE", 58.0),
    "F": ("NYSE", 11.5),
    "XOM": ("NYSE", 104.0),
    "WMT": ("NYSE", 67.0),
    "MSFT": ("NASDAQ", 325.0),
    "INTC": ("NASDAQ", 33.0),
    "CSCO": ("NASDAQ", 48.0),
    "SIRI": ("NASDAQ", 4.2),
}


@dataclass(slots=True)
class Market:
    """Prices on a random walk that tends back to its start, so that it stays plausible for days."""

    dice: random.Random
    prices: dict[str, float] = field(
        default_factory=lambda: {name: start for name, (_, start) in MARKET.items()}
    )

    def quote(self) -> dict[str, Any]:
        """Returns the next quote of a random stock."""
        symbol = self.dice.choice(list(MARKET))
        venue, start = MARKET[symbol]
        old = self.prices[symbol]
        drift = 0.02 * (start - old) / start
        new = max(0.01, old * (1.0 + drift + self.dice.gauss(0.0, 0.006)))
        self.prices[symbol] = new
        return {
            "symbol": symbol,
            "venue": venue,
            "price": round(new, 2),
            "change": round(100.0 * (new - start) / start, 2),
            "volume": int(self.dice.paretovariate(1.2) * 100),
            "halted": self.dice.random() < 0.002,
        }


def sample_subscriptions(url: str) -> list[NewSubscription]:
    """Returns narrow and wide, overlapping and disjoint filters, in both forms of the filter language."""
    filters: list[tuple[str, dict[str, Any] | str]] = []
    for symbol, (_, start) in MARKET.items():
        filters += [
            (f"{symbol} rises", {"symbol": symbol, "price": {"gt": round(start * 1.01, 2)}}),
            (f"{symbol} falls", f'symbol == "{symbol}" and price < {start * 0.99:.2f}'),
            (f"{symbol} moves", {"symbol": symbol, "$any": [{"change": {"gt": 2}}, {"change": {"lt": -2}}]}),
            (f"{symbol} in bulk", {"symbol": symbol, "volume": {"gte": 2000}}),
        ]
    filters += [
        ("whales", "volume >= 20000"),
        ("penny stocks", "price < 5"),
        ("blue chips on NYSE", {"venue": {"prefix": "NY"}, "price": {"between": [100, 200]}}),
        ("halts", {"halted": True}),
        ("crashes", "change < -5"),
        ("two favourites", {"symbol": ["GE", "IBM"], "change": {"gte": 1}}),
    ]
    return [
        NewSubscription(topic=TOPIC, filter=filter, url=url, recipient=who, expires=LEASE, owner=OWNER)
        for who, filter in filters
    ]


@dataclass(slots=True)
class Tally:
    """Figures of the view."""

    began: float = field(default_factory=time.monotonic)
    published: int = 0
    arrived: int = 0
    matches: int = 0
    subscriptions: int = 0
    servers: list[Server] = field(default_factory=list)
    trouble: str = ""
    latest: deque[Notification] = field(default_factory=lambda: deque(maxlen=SHOWN))

    def notified(self, notification: Notification) -> None:
        self.arrived += 1
        self.matches += len(notification.matches)
        self.latest.append(notification)

    def line(self) -> str:
        states = " ".join(f"{server.id}:{server.state}" for server in self.servers)
        return (
            f"{self.published:,} events in, {self.arrived:,} notifications arrived "
            f"({self.matches:,} matches of {self.subscriptions} subscriptions); {states}"
            + (f"; {self.trouble}" if self.trouble else "")
        )


async def run_demo(url: str, *, key: str | None = None, plain: bool = False) -> None:
    """Runs the sample workload against the network at `url` until cancelled.

    `plain` prints lines instead of the live view, as without a terminal.
    """
    tally = Tally()

    async def notified(notification: Notification) -> None:
        tally.notified(notification)

    async with AsyncClient(url, key=key) as client, Receiver(notified) as receiver:
        try:
            async with _subscribed(client, receiver.url) as ids:
                tally.subscriptions = len(ids)
                async with asyncio.TaskGroup() as group:
                    group.create_task(_publish(client, tally))
                    group.create_task(_renew(client, ids, tally))
                    group.create_task(_watch(client, tally))
                    group.create_task(
                        _show_lines(tally) if plain or not sys.stdout.isatty() else _show_live(tally)
                    )
        except ClientError as error:  # the network continues without it
            print(f"the sample workload could not start: {error}", file=sys.stderr)  # noqa: T201 - its output


@asynccontextmanager
async def _subscribed(client: AsyncClient, url: str) -> AsyncIterator[list[str]]:
    """Creates topic and subscriptions, after deleting those of an earlier demo; deletes them at the end."""
    known = {topic.name: topic.attributes for topic in await client.topics()}
    await client.create_topic(TOPIC, {**known.get(TOPIC, {}), **ATTRIBUTES})
    left = [subscription.id async for subscription in client.subscriptions(owner=OWNER)]
    await _unsubscribe(client, left)
    ids = [made.id for made in await client.subscribe_many(sample_subscriptions(url))]
    try:
        yield ids
    finally:
        try:
            async with asyncio.timeout(3.0):
                await _unsubscribe(client, ids)
        except (TimeoutError, ClientError):
            pass  # they expire


async def _unsubscribe(client: AsyncClient, ids: list[str]) -> None:
    for id in ids:
        await client.unsubscribe(id)


async def _publish(client: AsyncClient, tally: Tally) -> None:
    market = Market(random.Random())
    due = time.monotonic()
    while True:
        quotes = [market.quote() for _ in range(QUOTES_A_BATCH)]
        try:
            tally.published += (await client.publish_many(TOPIC, quotes)).accepted
            tally.trouble = ""
        except ClientError as error:
            tally.trouble = f"not published: {error}"
        # Batches that were missed while the network did not answer are skipped.
        due = max(due + BATCH_SECONDS, time.monotonic() - BATCH_SECONDS)
        await asyncio.sleep(due - time.monotonic())


async def _renew(client: AsyncClient, ids: list[str], tally: Tally) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        for id in ids:
            try:
                await client.renew(id, LEASE)
            except ClientError as error:
                tally.trouble = f"not renewed: {error}"


async def _watch(client: AsyncClient, tally: Tally) -> None:
    while True:
        try:
            tally.servers = await client.servers()
        except ClientError as error:
            tally.trouble = str(error)
        await asyncio.sleep(1.0)


async def _show_lines(tally: Tally) -> None:
    while True:
        await asyncio.sleep(LINE_SECONDS)
        print(tally.line(), file=sys.stderr, flush=True)  # noqa: T201 - the view is this program's output


async def _show_live(tally: Tally) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(_view(tally), console=Console(), refresh_per_second=4, transient=True) as live:
        while True:
            await asyncio.sleep(0.5)
            live.update(_view(tally))


def _view(tally: Tally) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    seconds = max(time.monotonic() - tally.began, 0.001)
    head = Text(
        f"topic {TOPIC}: {tally.published:,} events in ({tally.published / seconds:.0f}/s), "
        f"{tally.arrived:,} notifications arrived, {tally.matches:,} matches "
        f"of {tally.subscriptions} subscriptions"
    )
    servers = Table("server", "state", "subscriptions", "lag", "forwarded", box=box.SIMPLE)
    for server in tally.servers:
        servers.add_row(
            server.id,
            server.state or "",
            f"{server.subscriptions:,}",
            "" if server.lag is None else f"{server.lag:,}",
            "" if server.hit_ratio is None else f"{server.hit_ratio:.0%}",
        )
    latest = Table("event", "price", "change", "volume", "notified", box=box.SIMPLE)
    for notification in tally.latest:
        quote = notification.event.attributes
        whom = ", ".join(match.recipient or match.subscription for match in notification.matches)
        latest.add_row(
            str(quote.get("symbol", "")),
            f"{quote.get('price', '')}",
            f"{quote.get('change', '')} %",
            f"{quote.get('volume', '')}",
            Text(whom, overflow="ellipsis", no_wrap=True),
        )
    parts: list[RenderableType] = [head, servers, latest]
    if tally.trouble:
        parts.append(Text(tally.trouble, style="yellow"))
    return Group(*parts)
