"""The command line `edn`: one module per command or group; `edn.tools.console` is their shared output.

Commands speak to a network through `edn.client` only. Heavy imports happen inside the commands that need
them, so that `edn --help` stays quick. Commands of other packages import `edn.tools.console`, too;
nothing but tests imports this package.

All of them speak by one means: results go to standard output by `typer.echo`, `show_json` and `show_table`,
words to the person beside them to standard error by `say`, and `fail` ends a command.

Exit codes: 0 done, 1 refused by the network, 2 wrong usage or unreadable input, 3 no network can be reached.
"""

from __future__ import annotations


def main() -> None:
    """The console script."""
    from edn.cli.app import app

    app(prog_name="edn")
