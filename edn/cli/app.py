"""The tree of commands."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from edn.cli import (
    advertisements,
    backup,
    clocks,
    config,
    contexts,
    delivery,
    explain,
    export,
    import_,
    keys,
    listen,
    move,
    publish,
    routes,
    secrets,
    servers,
    sources,
    status,
    subscriptions,
    tenants,
    top,
    topics,
    trace,
    up,
)
from edn.cli.arguments import read_secret_file
from edn.cli.output import show
from edn.tools.checker import command as checking
from edn.tools.console import JsonOption

app = typer.Typer(
    name="edn",
    help="Publish events, subscribe to them by content, and operate the network.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def credentials(
    key: Annotated[
        str | None,
        typer.Option(help="API key. Other users of this machine can see it; prefer --key-file or EDN_KEY."),
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="File with the API key.")] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(envvar="EDN_TLS_CA", help="Certificate authority of an https network, in PEM."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(envvar="EDN_TLS_CERT", help="Client certificate, in PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(envvar="EDN_TLS_KEY", help="Private key of the client certificate, in PEM.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(envvar="EDN_CONTEXT", help="Context to use (see `edn context`).")
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Publish events, subscribe to them by content, and operate the network."""
    for name, file in (("CA", tls_ca), ("CERT", tls_cert), ("KEY", tls_key)):
        if file is not None:
            os.environ[f"EDN_TLS_{name}"] = str(file)
    contexts.enter(context)
    given = read_secret_file(key_file) or key
    if given:
        # Every client of this process reads the environment, also those of the lazily loaded trees.
        os.environ["EDN_KEY"] = given


app.command("up")(up.up)
app.add_typer(topics.app, name="topic")
app.add_typer(keys.app, name="key")
app.add_typer(tenants.app, name="tenant")
app.command("subscribe")(subscriptions.subscribe)
app.command("pause")(subscriptions.pause)
app.command("resume")(subscriptions.resume)
app.command("unsubscribe")(subscriptions.unsubscribe)
app.command("subscriptions")(subscriptions.subscriptions)
app.add_typer(subscriptions.app, name="subscription")
app.command("advertise")(advertisements.advertise)
app.command("unadvertise")(advertisements.unadvertise)
app.command("advertisements")(advertisements.advertisements)
app.add_typer(advertisements.app, name="advertisement")
app.command("asyncapi")(advertisements.asyncapi)
app.add_typer(delivery.app, name="delivery")
app.add_typer(delivery.letters, name="dead-letters")
app.add_typer(servers.app, name="server")
app.add_typer(sources.app, name="source")
app.add_typer(routes.app, name="route")
app.command("export")(export.export)
app.command("import")(import_.import_)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("after-restore")(backup.after_restore)
app.command("move-to")(move.move_to)
app.command("publish")(publish.publish)
app.command("listen")(listen.listen)
app.command("status")(status.status)
app.add_typer(clocks.app, name="clock")
app.add_typer(secrets.app, name="secrets")
app.command("top")(top.top)
app.command("trace")(trace.trace)
app.command("explain")(explain.explain)
app.add_typer(contexts.app, name="context")
app.add_typer(config.app, name="config")
app.command("check")(checking.check)


@app.command()
def version(json: JsonOption = False) -> None:
    """Print the version."""
    from edn import __version__

    show(json, {"version": __version__}, f"edn {__version__}")


class Tree(NamedTuple):
    """Commands of another package, loaded when they are called because they import large libraries."""

    module: str
    help: str
    #: arguments when none are given
    default_args: tuple[str, ...] = ("--help",)


TREES = {
    "bench": Tree("edn.tools.bench.command", "Run benchmarks of single components."),
    "evaluate": Tree("evaluation.command", "Run the published experiments on this code."),
    "repartition": Tree(
        "partitioning.repartitioning",
        "Plan a new assignment of subscriptions to servers, and migrate them.",
        default_args=(),
    ),
    "capacity": Tree(
        "selftune.command", "Predict the throughput of the network, also for other settings.", default_args=()
    ),
}


def _mount(name: str, tree: Tree) -> None:
    @app.command(
        name,
        help=f"{tree.help} See `edn {name} --help`.",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )
    def run(context: typer.Context) -> None:
        import_module(tree.module).app(args=context.args or list(tree.default_args), prog_name=f"edn {name}")


for _name, _tree in TREES.items():
    _mount(_name, _tree)
