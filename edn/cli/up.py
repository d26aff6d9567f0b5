"""`edn up`: a whole network on this machine, in one data folder.

DATA/lock              held by the supervisor and all its children for as long as any of them lives
DATA/secret            shared by the network's processes, readable by its owner only
DATA/dispatcher/       the log and the directory; of further dispatchers dispatcher2/ …
DATA/servers/s1/ …     one folder a server
DATA/logs/             what the processes say
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edn.tools.console import USAGE, fail


def up(
    servers: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="How many servers; 3 in a new folder, else as many as it holds."),
    ] = None,
    dispatchers: Annotated[
        int | None,
        typer.Option(
            min=1, max=16, help="How many dispatchers; 1 in a new folder, else as many as it holds."
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Port of the dispatcher, of further ones those after it; 0 is a free one."
        ),
    ] = 8080,
    host: Annotated[str, typer.Option(help="Address of the dispatcher.")] = "127.0.0.1",
    data: Annotated[Path, typer.Option(help="Folder that holds everything; made when missing.")] = Path(
        ".edn"
    ),
    demo: Annotated[bool, typer.Option("--demo", help="Add sample traffic and a live view of it.")] = False,
    allow_loopback_sinks: Annotated[
        bool,
        typer.Option(help="Let notifications go to addresses on this machine: right for trying out only."),
    ] = True,
    open: Annotated[
        bool | None,
        typer.Option(
            "--open/--locked", help="Ask nobody for a key; right on loopback only, and the default there."
        ),
    ] = None,
    json_ready: Annotated[
        bool, typer.Option("--json-ready", help="Print one line of JSON when ready, for programs.")
    ] = False,
    with_stdin: Annotated[
        bool,
        typer.Option(
            "--with-stdin", help="Stop when standard input ends: with the program that holds it open."
        ),
    ] = False,
) -> None:
    """Start a network: a dispatcher and servers, watched and restarted until Ctrl-C."""
    import asyncio

    from edn.cli.network import Network, Settings, StartError, prepare
    from edn.runtime.process import is_loopback

    settings = Settings(
        data=data.absolute(),
        host=host,
        port=port,
        servers=servers,
        dispatchers=dispatchers,
        demo=demo,
        allow_loopback_sinks=allow_loopback_sinks,
        open=is_loopback(host) if open is None else open,
        json_ready=json_ready,
        with_stdin=with_stdin,
    )
    try:
        with prepare(settings) as folder:
            asyncio.run(Network(settings, folder).run())
    except StartError as error:
        fail(str(error), USAGE if error.usage else 1)
