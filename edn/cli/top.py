"""`edn top`: the network at work, a line a server, again and again until q or Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from edn.tools.console import DEFAULT_URL, UrlOption, connected, show_json, show_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edn.client import Client, Server

#: counters whose rates are shown
COUNTED = ("forwarded", "useful", "matched", "notified")


def top(
    seconds: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")] = 2.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many looks; without it, at q or Ctrl-C.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a look, for programs.")] = False,
) -> None:
    """Show rates, lag and load of every server, live.

    Without a terminal, or with --count, looks are printed under each other.
    """
    with connected(url) as client:
        look = _Look(client)
        if json or not sys.stdout.isatty() or count is not None:
            _print(look, seconds, count, json)
        else:
            _live(look, seconds)


class _Look:
    """The servers now, and how fast their counters have grown since the last look."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._at = time.monotonic()
        self.servers: list[Server] = client.servers()
        self.rates: dict[str, dict[str, float]] = {server.id: {} for server in self.servers}
        self.precision = client.tuning().precision

    def again(self) -> None:
        before = {server.id: server for server in self.servers}
        self.servers = self._client.servers()
        self.precision = self._client.tuning().precision
        now = time.monotonic()
        elapsed, self._at = max(now - self._at, 1e-3), now
        self.rates = {
            server.id: {
                name: max(0, (getattr(server, name) or 0) - (getattr(before[server.id], name) or 0)) / elapsed
                for name in COUNTED
            }
            for server in self.servers
            if server.id in before
        }

    def total(self, name: str) -> float:
        return sum(rates.get(name, 0.0) for rates in self.rates.values())

    def describe(self) -> dict[str, object]:
        return {"precision": self.precision, "servers": self.servers, "rates": self.rates}

    def view(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        precision = "–" if self.precision is None else f"{self.precision:.0%}"
        forwarded, useful = self.total("forwarded"), self.total("useful")
        wasted = f"{1 - useful / forwarded:.0%}" if forwarded else "–"
        head = Text(
            f"{self._client.url}  precision {precision}  forwarded {forwarded:,.0f}/s"
            f"  false positives {wasted}  matched {self.total('matched'):,.0f}/s"
            f"  notified {self.total('notified'):,.0f}/s"
        )
        table = Table("server", "state", box=None)
        for heading in ("subscriptions", "lag", "in/s", "useful/s", "matched/s", "notified/s", "to deliver"):
            table.add_column(heading, justify="right")
        for server in self.servers:
            rates = self.rates.get(server.id, {})
            table.add_row(
                server.id,
                Text(server.state or "", style="green" if server.state == "ready" else "red"),
                f"{server.subscriptions:,}",
                "" if server.lag is None else f"{server.lag:,}",
                *(f"{rates.get(name, 0.0):,.0f}" for name in COUNTED),
                "" if server.backlog is None else f"{server.backlog:,}",
            )
        return Group(head, table)


def _print(look: _Look, seconds: float, count: int | None, json: bool) -> None:
    left = count
    while left is None or left > 0:
        time.sleep(seconds)
        look.again()
        if json:
            show_json(look.describe())
        else:
            show_table(look.view())
        left = None if left is None else left - 1


def _live(look: _Look, seconds: float) -> None:
    from rich.console import Console
    from rich.live import Live

    with _keys() as pressed, Live(look.view(), console=Console(), screen=True, auto_refresh=False) as live:
        live.refresh()
        try:
            while pressed(seconds) not in ("q", "Q", "\x03", "\x1b"):
                look.again()
                live.update(look.view(), refresh=True)
        except KeyboardInterrupt:
            pass


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits up to some seconds for a key; empty if none was pressed."""
    import select
    import termios
    import tty

    if not sys.stdin.isatty():

        def never(wait: float) -> str:
            time.sleep(wait)
            return ""

        yield never
        return
    before = termios.tcgetattr(sys.stdin)

    def pressed(wait: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], wait)
        return sys.stdin.read(1) if ready else ""

    tty.setcbreak(sys.stdin)
    try:
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
