"""The tree of commands."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from edn.cli import (
    backing_up,
    clocks,
    configuring,
    contexts,
    delivery,
    explaining,
    exporting,
    importing,
    journey,
    keys,
    listening,
    publishing,
    routes,
    servers,
    status,
    subscriptions,
    top,
    topics,
    up,
)
from edn.cli.subscriptions import read_secret_file
from edn.tools.checker import command as checking
from edn.tools.console import JsonOption, show_json

app = typer.Typer(
    name="edn",
    help="An event distribution network: publish events, subscribe to their content, be notified.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def credentials(
    key: Annotated[
        str | None, typer.Option(help="API key; others on this machine can see it here: better EDN_KEY.")
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="File that holds the API key.")] = None,
    context: Annotated[
        str | None, typer.Option(envvar="EDN_CONTEXT", help="Named network to speak to: see edn context.")
    ] = None,
) -> None:
    """An event distribution network: publish events, subscribe to their content, be notified."""
    contexts.enter(context)
    given = read_secret_file(key_file) or key
    if given:
        # Where every client of this process looks, those of the trees below too.
        os.environ["EDN_KEY"] = given


app.command("up")(up.up)
app.add_typer(topics.app, name="topic")
app.add_typer(keys.app, name="key")
app.command("subscribe")(subscriptions.subscribe)
app.command("pause")(subscriptions.pause)
app.command("resume")(subscriptions.resume)
app.command("unsubscribe")(subscriptions.unsubscribe)
app.command("subscriptions")(subscriptions.subscriptions)
app.add_typer(delivery.app, name="delivery")
app.add_typer(delivery.letters, name="dead-letters")
app.add_typer(servers.app, name="server")
app.add_typer(routes.app, name="route")
app.command("export")(exporting.export)
app.command("import")(importing.import_)
app.command("backup")(backing_up.backup)
app.command("restore")(backing_up.restore)
app.command("publish")(publishing.publish)
app.command("listen")(listening.listen)
app.command("status")(status.status)
app.add_typer(clocks.app, name="clock")
app.command("top")(top.top)
app.command("trace")(journey.trace)
app.command("explain")(explaining.explain)
app.add_typer(contexts.app, name="context")
app.add_typer(configuring.app, name="config")
app.command("check")(checking.check)


@app.command()
def version(json: JsonOption = False) -> None:
    """Print the version."""
    from edn import __version__

    if json:
        show_json({"version": __version__})
    else:
        typer.echo(f"edn {__version__}")


class Tree(NamedTuple):
    """A tree of commands that is loaded only when it is called: these import large libraries."""

    module: str
    help: str
    #: what it is given when nothing follows its name
    alone: tuple[str, ...] = ("--help",)


TREES = {
    "bench": Tree("edn.tools.bench.command", "Measure single parts against their peers."),
    "evaluate": Tree("evaluation.command", "Run the published experiments on this code."),
    "repartition": Tree(
        "partitioning.repartitioning",
        "Decide anew which server hosts which subscription, and move them.",
        alone=(),
    ),
    "capacity": Tree(
        "selftune.command", "What the network could carry, and what if it were different.", alone=()
    ),
}


def _mount(name: str, tree: Tree) -> None:
    @app.command(
        name,
        help=f"{tree.help} (`edn {name} --help` lists them)",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )
    def run(context: typer.Context) -> None:
        import_module(tree.module).app(args=context.args or list(tree.alone), prog_name=f"edn {name}")


for _name, _tree in TREES.items():
    _mount(_name, _tree)
