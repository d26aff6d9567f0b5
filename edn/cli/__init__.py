"""The command line `edn`: one module per command or group of commands.

Commands use a network through `edn.client` only. They import large libraries inside functions, so that
`edn --help` stays quick. `edn.tools.console` is shared with the commands of other packages.

Exit codes: 0 success, 1 refused by the network, 2 wrong usage or unreadable input, 3 network not reachable.
"""

from __future__ import annotations


def main() -> None:
    """Runs the console script."""
    from edn.cli.app import app

    app(prog_name="edn")
