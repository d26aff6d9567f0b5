"""`edn up`: a network on this machine, in one data folder.

DATA/lock              locked while the supervisor or one of its children runs
DATA/secret            the network's secret, readable by its owner only
DATA/secret-keys       the key of stored secrets, likewise, unless another one is given
DATA/tls/              with --tls: a development authority and the certificate of all processes
DATA/dispatcher/       the log and the directory
DATA/servers/s1/ …     one folder per server
DATA/logs/             output of the processes
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edn.tools.console import USAGE, fail


def up(
    servers: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Number of servers. Default: 3 in a new folder, else all in it."),
    ] = None,
    dispatchers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=16,
            help="Number of dispatchers; several need --database. Default: as before, or 1.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the first dispatcher; others use the ports after it. 0: free ones.",
        ),
    ] = 8080,
    host: Annotated[str, typer.Option(help="Address that dispatchers listen on.")] = "127.0.0.1",
    data: Annotated[Path | None, typer.Option(help="Data folder; created if missing. Default: .edn")] = None,
    database: Annotated[
        str | None,
        typer.Option(help="PostgreSQL database in place of --data; .edn has only the secret and the logs."),
    ] = None,
    allow_single_database: Annotated[
        bool, typer.Option(help="Accept a database without a synchronous replica.")
    ] = False,
    tls: Annotated[
        bool, typer.Option("--tls", help="Serve https with certificates of a new development authority.")
    ] = False,
    secret_key_file: Annotated[
        Path | None,
        typer.Option(help="File with the keys of stored secrets. Default: a new key in the data folder."),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Run sample traffic with a live view.")] = False,
    allow_loopback_sinks: Annotated[
        bool,
        typer.Option(help="Allow notifications to addresses on this machine. Not for production."),
    ] = True,
    allow_sink_network: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CIDR",
            help="Private network whose addresses may be sinks, also over plain http. Repeatable.",
        ),
    ] = None,
    open: Annotated[
        bool | None,
        typer.Option(
            "--open/--locked", help="Require no API key. Default on loopback; unsafe on other addresses."
        ),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            help="Settings file in TOML with the sections [dispatcher] and [server]; "
            "the variables EDN_… (dispatcher) and EDN_SERVER_… are read, too."
        ),
    ] = None,
    json_ready: Annotated[
        bool, typer.Option("--json-ready", help="Print one line of JSON when ready.")
    ] = False,
    with_stdin: Annotated[
        bool,
        typer.Option("--with-stdin", help="Stop when standard input is closed."),
    ] = False,
) -> None:
    """Run a network of a dispatcher and servers until Ctrl-C. Processes that end are restarted."""
    import asyncio

    from edn.cli.network import Network, Settings, StartError, prepare
    from edn.runtime.config import parse_sink_network
    from edn.runtime.process import is_loopback

    for network in allow_sink_network or ():
        try:
            parse_sink_network(network)
        except ValueError:
            fail(
                "--allow-sink-network must be a network such as 10.0.0.0/8, not all addresses, "
                f'got "{network}"',
                USAGE,
            )
    if database is not None and data is not None:
        fail("--data must not be given together with --database", USAGE)
    if database is None and dispatchers is not None and dispatchers > 1:
        fail(f"--dispatchers must be 1 without --database, which they share, got {dispatchers}", USAGE)
    settings = Settings(
        data=(data or Path(".edn")).absolute(),
        database=database,
        allow_single_database=allow_single_database,
        tls=tls,
        secret_key_file=None if secret_key_file is None else secret_key_file.absolute(),
        host=host,
        port=port,
        servers=servers,
        dispatchers=dispatchers,
        demo=demo,
        allow_loopback_sinks=allow_loopback_sinks,
        allow_sink_networks=tuple(allow_sink_network or ()),
        open=is_loopback(host) if open is None else open,
        json_ready=json_ready,
        with_stdin=with_stdin,
        config_file=None if config_file is None else config_file.absolute(),
    )
    if config_file is not None and not config_file.is_file():
        fail(f"--config-file must be a file, got {config_file}", USAGE)
    try:
        with prepare(settings) as folder:
            asyncio.run(Network(settings, folder).run())
    except StartError as error:
        fail(str(error), USAGE if error.usage else 1)
