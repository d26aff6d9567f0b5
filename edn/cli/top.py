"""`edn top`: live rates, lag and load, one line per server, until q or Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from edn.cli.output import make_table, number
from edn.tools.console import DEFAULT_URL, UrlOption, connected, show_json, show_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edn.client import Client, Server

#: counters whose rates are shown
COUNTED = ("forwarded", "useful", "matched", "notified")
NUMBERS = ("subscriptions", "lag", "in/s", "useful/s", "matched/s", "notified/s", "backlog")


def top(
    seconds: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between updates.")] = 2.0,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many updates.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per update.")] = False,
) -> None:
    """Show rates, lag and load of every server, live. Press q to quit.

    Without a terminal, or with --count, updates are printed below each other.
    """
    with connected(url) as client:
        view = _View(client)
        if json or not sys.stdout.isatty() or count is not None:
            _print(view, seconds, count, json)
        else:
            _live(view, seconds)


class _View:
    """The state of the servers, and the rates of their counters since the previous update."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._at = time.monotonic()
        self.servers: list[Server] = client.servers()
        self.rates: dict[str, dict[str, float]] = {server.id: {} for server in self.servers}
        self.precision = client.tuning().precision

    def update(self) -> None:
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

    def render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        forwarded, useful = self.total("forwarded"), self.total("useful")
        wasted = f"{1 - useful / forwarded:.0%}" if forwarded else "–"
        head = Text(
            f"{self._client.url}  precision {number(self.precision, '.0%') or '–'}"
            f"  forwarded {forwarded:,.0f}/s  false positives {wasted}"
            f"  matched {self.total('matched'):,.0f}/s  notified {self.total('notified'):,.0f}/s"
        )
        rows = (
            (
                server.id,
                Text(server.state or "", style="green" if server.state == "ready" else "red"),
                number(server.subscriptions),
                number(server.lag),
                *(number(self.rates.get(server.id, {}).get(name, 0.0), ",.0f") for name in COUNTED),
                number(server.backlog),
            )
            for server in self.servers
        )
        return Group(head, make_table(("server", "state", *NUMBERS), rows, right=NUMBERS))


def _print(view: _View, seconds: float, count: int | None, json: bool) -> None:
    left = count
    while left is None or left > 0:
        time.sleep(seconds)
        view.update()
        if json:
            show_json(view.describe())
        else:
            show_table(view.render())
        left = None if left is None else left - 1


def _live(view: _View, seconds: float) -> None:
    from rich.console import Console
    from rich.live import Live

    with _keys() as pressed, Live(view.render(), console=Console(), screen=True, auto_refresh=False) as live:
        live.refresh()
        try:
            while pressed(seconds) not in ("q", "Q", "\x03", "\x1b"):
                view.update()
                live.update(view.render(), refresh=True)
        except KeyboardInterrupt:
            pass


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yields a function that waits for a key and returns it, or "" after the given seconds."""
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
