"""`edn clock`: show whether a wall clock has jumped, and confirm that it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected, show_json

if TYPE_CHECKING:
    from edn.client import Clock

app = typer.Typer(
    name="clock",
    help="Show whether a wall clock has jumped, and confirm that it is right.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command("show")
def show_clock(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show the network's time, and which wall clocks are suspect."""
    with connected(url) as client:
        found = client.clock()
    if json:
        show_json(found)
    else:
        show(found)


@app.command("confirm")
def confirm(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Trust the wall clocks of the dispatcher and of all servers now: what is old by them expires."""
    with connected(url) as client:
        found = client.confirm_clock()
    if json:
        show_json(found)
    else:
        show(found)


def show(clock: Clock) -> None:
    """Print the network's time and every suspect wall clock."""
    typer.echo(f"network time {clock.time}, wall clock {clock.wall}")
    if clock.suspect is not None:
        typer.echo(
            f"the dispatcher's wall clock jumped by {clock.suspect:+,.0f} s: trusted in "
            f"{clock.trusted_in:,.0f} s, or by `edn clock confirm`"
        )
    for server in clock.servers:
        if server.suspect is not None:
            typer.echo(f"the wall clock of {server.id} jumped by {server.suspect:+,.0f} s")
        if server.failure is not None:
            typer.echo(f"the wall clock of {server.id} was not confirmed: {server.failure}")
    if not clock.is_suspect:
        typer.echo("no wall clock is suspect")
