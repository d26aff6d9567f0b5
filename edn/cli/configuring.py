"""`edn config check`: whether a file of settings is right, and what would count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from edn.cli.console import USAGE, fail, say

app = typer.Typer(help="Settings of the services.", no_args_is_help=True)

_MODULES = {"dispatcher": "dispatcher", "server": "edn_server"}


@app.callback()
def config() -> None:
    """Settings of the services."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="Settings in TOML, with the sections that are to be checked.")],
) -> None:
    """Check a file: each setting, what it would be with this environment, and where that comes from.

    Nothing is started. Exit code 2 if something is wrong.
    """
    import tomllib

    try:
        sections = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}", USAGE)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{file} is no TOML: {error}", USAGE)
    chosen = [name for name in _MODULES if name in sections] or list(_MODULES)
    wrong = False
    for name in chosen:
        typer.echo(f"[{name}]")
        done = subprocess.run(
            [sys.executable, "-m", _MODULES[name], "--config-file", str(file), "--check-config"],
            capture_output=True,
            text=True,
        )
        typer.echo(done.stdout, nl=False)
        if done.returncode:
            wrong = True
            said = [line for line in done.stderr.splitlines() if not line.startswith(("usage:", " "))]
            say(said[-1] if said else f"it ended with {done.returncode}")
    if wrong:
        raise typer.Exit(USAGE)
