"""`edn clock`: show whether a wall clock has jumped, and confirm that it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from edn.cli.output import show
from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected

if TYPE_CHECKING:
    from edn.client import Clock

app = typer.Typer(help="Show suspect wall clocks, and confirm that they are right.", no_args_is_help=True)


@app.command("show")
def show_clock(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show network time and suspect wall clocks."""
    with connected(url) as client:
        found = client.clock()
    show(json, found, *describe(found))


@app.command("confirm")
def confirm(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Trust the wall clocks of the dispatcher and all servers now. Whatever is overdue expires."""
    with connected(url) as client:
        found = client.confirm_clock()
    show(json, found, *describe(found))


def describe(clock: Clock) -> list[str]:
    """Returns lines with network time and every suspect wall clock."""
    lines = [f"network time {clock.time}, wall clock {clock.wall}"]
    if clock.suspect is not None:
        lines.append(
            f"the dispatcher's wall clock jumped by {clock.suspect:+,.0f} s; it is trusted in "
            f"{clock.trusted_in:,.0f} s, or after `edn clock confirm`"
        )
    for server in clock.servers:
        if server.suspect is not None:
            lines.append(f"the wall clock of {server.id} jumped by {server.suspect:+,.0f} s")
        if server.failure is not None:
            lines.append(f"the wall clock of {server.id} was not confirmed: {server.failure}")
    return lines if clock.is_suspect else [*lines, "no wall clock is suspect"]
