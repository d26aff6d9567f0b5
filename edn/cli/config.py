"""`edn config check`: validate a settings file and show the effective settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from edn.tools.console import USAGE, JsonOption, fail, say, show_json

app = typer.Typer(help="Check settings of dispatchers and servers.", no_args_is_help=True)

_MODULES = {"dispatcher": "dispatcher", "server": "edn_server"}


@app.callback()
def config() -> None:
    """Check settings of dispatchers and servers."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="Settings file in TOML.")],
    as_json: JsonOption = False,
) -> None:
    """Check a settings file. Print all its errors, or each setting with its value and origin.

    Environment variables are taken into account. Nothing is started. Exit code 2 if there are errors.
    """
    import json
    import tomllib

    try:
        sections = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", USAGE)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{file} must be TOML: {error}", USAGE)
    reports = {}
    has_errors = False
    for name in [name for name in _MODULES if name in sections] or list(_MODULES):
        command = [sys.executable, "-m", _MODULES[name], "--config-file", str(file), "--check-config"]
        done = subprocess.run([*command, "--json"] if as_json else command, capture_output=True, text=True)
        has_errors = has_errors or done.returncode != 0
        if as_json and done.stdout:
            reports[name] = json.loads(done.stdout)
        elif not as_json:
            typer.echo(f"[{name}]")
            typer.echo(done.stdout, nl=False)
        if done.stderr:
            say(done.stderr.rstrip())
    if as_json:
        show_json(reports)
    if has_errors:
        raise typer.Exit(USAGE)
