"""`edn config check`: validates a settings file and shows the effective settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from edn.tools.console import USAGE, JsonOption, fail, say, show_json

app = typer.Typer(help="Settings of the services.", no_args_is_help=True)

_MODULES = {"dispatcher": "dispatcher", "server": "edn_server"}


@app.callback()
def config() -> None:
    """Settings of the services."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="Settings in TOML, with the sections to check.")],
    as_json: JsonOption = False,
) -> None:
    """Check a file: every error in it, or each setting, its value in this environment, and its origin.

    Nothing is started. Exit code 2 if something is wrong.
    """
    import json
    import tomllib

    try:
        sections = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}", USAGE)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{file} must be TOML: {error}", USAGE)
    reports = {}
    wrong = False
    for name in [name for name in _MODULES if name in sections] or list(_MODULES):
        command = [sys.executable, "-m", _MODULES[name], "--config-file", str(file), "--check-config"]
        done = subprocess.run([*command, "--json"] if as_json else command, capture_output=True, text=True)
        wrong = wrong or done.returncode != 0
        if as_json and done.stdout:
            reports[name] = json.loads(done.stdout)
        elif not as_json:
            typer.echo(f"[{name}]")
            typer.echo(done.stdout, nl=False)
        if done.stderr:
            say(done.stderr.rstrip())
    if as_json:
        show_json(reports)
    if wrong:
        raise typer.Exit(USAGE)
