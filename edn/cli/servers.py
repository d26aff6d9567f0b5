"""`edn server`: servers come, are emptied, are replaced and go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from edn.cli.following import follow
from edn.tools.console import (
    DEFAULT_URL,
    REFUSED,
    JsonOption,
    UrlOption,
    connected,
    fail,
    show_json,
)

if TYPE_CHECKING:
    from edn.client import Client, moving

app = typer.Typer(
    name="server",
    help="Add a server, empty one, replace one that is lost, forget one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Name = Annotated[str, typer.Argument(help="Its id.", show_default=False)]
RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.001, help="Subscriptions that are moved a second.")
]
DetachOption = Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")]


@app.command("add")
def add(
    name: Name,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for it to join.")] = 60.0,
    rate: RateOption = None,
    detach: DetachOption = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Give a server that has just been started its share of the subscriptions."""
    from edn.client import moving

    with connected(url) as client:
        _await_ready(client, name, wait, url)
        started = client.run(moving.fill_server(name, rate=rate))
        done = started if detach else follow(client, started)
    _say(done, f"{name} hosts {done.moved:,} subscriptions that were elsewhere", json)


@app.command("drain")
def drain(
    name: Name,
    rate: RateOption = None,
    detach: DetachOption = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Empty a server; then it may stop, and `edn server forget` takes it out."""
    from edn.client import moving

    with connected(url) as client:
        started = client.run(moving.drain_server(name, rate=rate))
        done = started if detach else follow(client, started)
    may = (
        "it may stop" if not done.unsettled else f"{done.unsettled:,} are not settled: it must run until then"
    )
    _say(done, f"{done.moved:,} subscriptions have left {name}; {may}", json)


@app.command("replace")
def replace(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    rate: RateOption = None,
    detach: DetachOption = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Build what a server that will not come back hosted anew on the others, from the directory and the log.

    What it had matched and not delivered is lost with its disk: if its data folder, or a backup of it that is
    not older than the log, can be saved, start it from there and drain it instead.
    """
    if not yes:
        typer.confirm(f"Server {name} will not come back, and its data folder is lost?", abort=True, err=True)
    from edn.client import moving

    with connected(url) as client:
        started = client.run(moving.replace_server(name, rate=rate))
        done = started if detach else follow(client, started)
    _say(done, f"{done.moved:,} subscriptions of {name} are on other servers", json)


@app.command("forget")
def forget(name: Name, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Take a server that hosts nothing and does not run out of the network."""
    from edn.client import moving

    with connected(url) as client:
        client.run(moving.forget_server(name))
    if json:
        show_json({"server": name, "forgotten": True})
    else:
        typer.echo(f"{name} is no part of the network any more")


def _await_ready(client: Client, name: str, seconds: float, url: str) -> None:
    deadline = time.monotonic() + seconds
    while True:
        states = {one.id: one.state for one in client.servers()}
        if states.get(name) == "ready":
            return
        if time.monotonic() > deadline:
            there = f"is {states[name]}" if name in states else "has not joined"
            fail(
                f"server {name} {there}; start it first:\n"
                f"  python -m edn_server --id {name} --data DIR --dispatcher {url} --secret-file FILE",
                REFUSED,
            )
        time.sleep(0.2)


def _say(done: moving.Repartition, message: str, json: bool) -> None:
    if json:
        show_json(done)
    else:
        typer.echo(message if done.over else f"repartition {done.id} is {done.state}")
