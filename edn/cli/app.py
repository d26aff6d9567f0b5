"""The tree of commands."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import typer

from edn.cli import listening, publishing, status, subscriptions, topics, up
from edn.cli.console import USAGE, JsonOption, fail, show_json

app = typer.Typer(
    name="edn",
    help="An event distribution network: publish events, subscribe to their content, be notified.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.add_typer(topics.app, name="topic")
app.command("subscribe")(subscriptions.subscribe)
app.command("unsubscribe")(subscriptions.unsubscribe)
app.command("subscriptions")(subscriptions.subscriptions)
app.command("publish")(publishing.publish)
app.command("listen")(listening.listen)
app.command("status")(status.status)


@app.command()
def version(json: JsonOption = False) -> None:
    """Print the version."""
    from edn import __version__

    if json:
        show_json({"version": __version__})
    else:
        typer.echo(f"edn {__version__}")


if find_spec("edn.bench") is not None:

    @app.command(
        "bench",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )
    def bench(context: typer.Context) -> None:
        """Measure single parts against their peers (`edn bench --help` lists the benchmarks)."""
        # Loaded only now: the benchmarks import every numerical library that there is.
        benchmarks = getattr(import_module("edn.bench"), "app", None)
        if benchmarks is None:
            fail("this installation has no benchmarks", USAGE)
        benchmarks(args=context.args or ["--help"], prog_name="edn bench")
