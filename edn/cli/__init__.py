"""The command line `edn`: one module a command or group, `console` for what they share.

Commands speak to a network through `edn.client` only; nothing but their tests imports this package. Heavy
imports happen inside the commands that need them, so that `edn --help` stays quick.

Exit codes: 0 done, 1 refused by the network, 2 wrong usage or unreadable input, 3 no network can be reached.
"""

from __future__ import annotations


def main() -> None:
    """The console script."""
    from edn.cli.app import app

    app(prog_name="edn")
