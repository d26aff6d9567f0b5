"""Generates docs/cli.md from the commands: `python -m edn.cli.reference`. A test compares them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from edn.cli import __doc__ as overview
from edn.cli.app import TREES, app

_HEAD = """# The command line

This page is generated from `edn COMMAND --help`. Use `--json` in programs; colours and live views appear only
on a terminal. {codes}

A command uses the network of the first of these that is given: `--url`, `EDN_URL`, the context of `--context`
or `EDN_CONTEXT`, the context of `edn context use`, `http://127.0.0.1:8080`. `edn --install-completion`
installs completion for your shell.
"""

#: options of every tree of commands, described once above
_COMPLETION = ("install_completion", "show_completion")


def page() -> str:
    codes = next(line for line in (overview or "").splitlines() if line.startswith("Exit codes"))
    trees = {name: typer.main.get_command(import_module(tree.module).app) for name, tree in TREES.items()}
    lines = [_HEAD.format(codes=codes)]
    root = typer.main.get_command(app)
    lines += _options(root)
    assert isinstance(root, TyperGroup)
    for name in sorted(root.commands):
        command = trees.get(name, root.commands[name])
        lines += _command(f"edn {name}", command, TREES[name].help if name in TREES else None)
    return "\n".join(lines).rstrip() + "\n"


def _command(path: str, command: Any, help: str | None = None) -> Iterator[str]:
    """Yields the section of a command, or of a group and all its commands."""
    if isinstance(command, TyperGroup):
        yield f"## `{path}`\n\n{_sentence(help or command.help)}\n"
        if command.params:
            yield from _options(command)
        for name in sorted(command.commands):
            yield from _command(f"{path} {name}", command.commands[name])
        return
    level = "##" if path.count(" ") == 1 else "###"
    arguments = " ".join(_metavar(one) for one in command.params if isinstance(one, TyperArgument))
    yield f"{level} `{f'{path} {arguments}'.strip()}`\n\n{_sentence(help or command.help)}\n"
    yield from _options(command)


def _options(command: Any) -> list[str]:
    rows = [
        f"| `{', '.join([*one.opts, *one.secondary_opts])}` | {_default(one)} | {_cell(one.help)} |"
        for one in command.params
        if isinstance(one, TyperOption) and one.name not in _COMPLETION and not one.hidden
    ]
    return ["| option | default | |", "|---|---|---|", *rows, ""] if rows else []


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _metavar(argument: TyperArgument) -> str:
    return argument.metavar or (argument.name or "").upper()


def _default(option: TyperOption) -> str:
    if option.required:
        return "required"
    if option.default is None or option.is_flag or callable(option.default):
        return ""
    return f"`{option.default}`"


def _sentence(help: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (help or "").split("\n\n"))


if __name__ == "__main__":
    sys.stdout.write(page())
