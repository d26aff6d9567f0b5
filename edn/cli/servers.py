"""`edn server`: add, drain, replace and forget servers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from edn.cli.arguments import parse_seconds
from edn.cli.output import follow, show
from edn.formats.counts import counted
from edn.tools.console import DEFAULT_URL, REFUSED, JsonOption, UrlOption, connected, fail

if TYPE_CHECKING:
    from edn.client import Client, moving
    from edn.client.conversation import Call

app = typer.Typer(help="Add, drain, replace and forget servers.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Id of the server.", show_default=False)]
RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.001, help="Subscriptions moved per second.")
]
DetachOption = Annotated[bool, typer.Option("--detach", help="Do not wait until it has finished.")]


@app.command("add")
def add(
    name: Name,
    wait: Annotated[
        str, typer.Option(help="How long to wait until the server has joined: seconds, or 5m.")
    ] = "60s",
    rate: RateOption = None,
    detach: DetachOption = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Move a share of the subscriptions to a new server. Start the server first."""
    from edn.client import moving

    seconds = parse_seconds(wait, "--wait")
    with connected(url) as client:
        _await_ready(client, name, seconds, url)
        done = _run(client, moving.fill_server(name, rate=rate), detach)
    _show(json, done, f"{counted(done.moved, 'subscription')} moved to {name}")


@app.command("drain")
def drain(
    name: Name,
    rate: RateOption = None,
    detach: DetachOption = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Move all subscriptions off a server. Then stop it and run `edn server forget`."""
    from edn.client import moving

    with connected(url) as client:
        done = _run(client, moving.drain_server(name, rate=rate), detach)
    rest = f"it must run until {done.unsettled:,} are handed over" if done.unsettled else "it may stop"
    _show(json, done, f"{counted(done.moved, 'subscription')} moved off {name}; {rest}")


@app.command("replace")
def replace(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    rate: RateOption = None,
    detach: DetachOption = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Rebuild the subscriptions of a lost server on other servers, from the directory and the log.

    Notifications in its outbox are lost with its disk. If its data folder can be saved, or a backup of it
    that is not older than the log, start the server from there and drain it instead.
    """
    if not yes:
        typer.confirm(f"Is server {name} lost for good, with its data folder?", abort=True, err=True)
    from edn.client import moving

    with connected(url) as client:
        done = _run(client, moving.replace_server(name, rate=rate), detach)
    _show(json, done, f"{counted(done.moved, 'subscription')} of {name} rebuilt on other servers")


@app.command("forget")
def forget(name: Name, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Remove a stopped server without subscriptions from the network."""
    from edn.client import moving

    with connected(url) as client:
        client.run(moving.forget_server(name))
    show(json, {"server": name, "forgotten": True}, f"removed server {name} from the network")


def _run(client: Client, call: Call[moving.Repartition], detach: bool) -> moving.Repartition:
    started = client.run(call)
    return started if detach else follow(client, started)


def _await_ready(client: Client, name: str, seconds: float, url: str) -> None:
    deadline = time.monotonic() + seconds
    while True:
        states = {one.id: one.state for one in client.servers()}
        if states.get(name) == "ready":
            return
        if time.monotonic() > deadline:
            state = f"is {states[name]}" if name in states else "has not joined"
            fail(
                f"server {name} {state}; start it first:\n"
                f"  python -m edn_server --id {name} --data DIR --dispatcher {url} --secret-file FILE",
                REFUSED,
            )
        time.sleep(0.2)


def _show(json: bool, done: moving.Repartition, message: str) -> None:
    show(json, done, message if done.over else f"repartition {done.id} is {done.state}")
