"""`edn context`: names for networks, so that nobody types addresses again and again.

Kept in `contexts.json` in the folder that EDN_CONFIG names, else in $XDG_CONFIG_HOME/edn or ~/.config/edn,
readable by its owner only. Of a key only the file that holds it is remembered.

What counts, the first that is given: the flags `--url` and `--key`; EDN_URL and EDN_KEY; the context of
`--context` or EDN_CONTEXT; the one that was chosen by `edn context use`; the network on this machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from edn.tools.console import USAGE, JsonOption, fail, show_json, show_table

app = typer.Typer(help="Names for networks: address and key, to be switched between.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The context.")]


class Context(msgspec.Struct, frozen=True):
    url: str
    #: file that holds the API key
    key_file: str | None = None


class _Contexts(msgspec.Struct):
    current: str | None = None
    contexts: dict[str, Context] = {}


def _file() -> Path:
    chosen = os.environ.get("EDN_CONFIG")
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return (Path(chosen) if chosen else home / "edn") / "contexts.json"


def _load() -> _Contexts:
    file = _file()
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Contexts)
    except FileNotFoundError:
        return _Contexts()
    except (OSError, msgspec.MsgspecError) as error:
        fail(f"{file} cannot be read: {error}; mend it, or remove it", USAGE)


def _save(contexts: _Contexts) -> None:
    file = _file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
        fresh.replace(file)
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror}", USAGE)


def enter(name: str | None) -> None:
    """Have commands speak to a context: that of this name, or the one in use; what is given by hand stays."""
    if name is None and not _file().exists():
        return
    contexts = _load()
    chosen = name or contexts.current
    if chosen is None:
        return
    context = contexts.contexts.get(chosen)
    if context is None:
        fail(f'there is no context "{chosen}"; `edn context list` names them', USAGE)
    # Where every client of this process looks; `setdefault`, because what is given by hand goes before.
    os.environ.setdefault("EDN_URL", context.url)
    if context.key_file is not None and "EDN_KEY" not in os.environ:
        try:
            os.environ["EDN_KEY"] = Path(context.key_file).read_text().strip()
        except OSError as error:
            fail(f"the key of context {chosen} in {context.key_file} cannot be read: {error.strerror}", USAGE)


@app.command("set")
def set_context(
    name: NameArgument,
    url: Annotated[str, typer.Option("--url", help="Address of the network; several with commas.")],
    key_file: Annotated[Path | None, typer.Option(help="File that holds the API key.")] = None,
) -> None:
    """Remember a network under a name; the first one is in use at once."""
    if not url.startswith(("http://", "https://")):
        fail(f'"{url}" is no address of a network: it begins with http:// or https://', USAGE)
    contexts = _load()
    contexts.contexts[name] = Context(url, None if key_file is None else str(key_file.absolute()))
    contexts.current = contexts.current or name
    _save(contexts)
    typer.echo(f"context {name}: {url}" + (" (in use)" if contexts.current == name else ""))


@app.command()
def use(name: NameArgument) -> None:
    """Speak to this network from now on."""
    contexts = _load()
    if name not in contexts.contexts:
        fail(f'there is no context "{name}"; `edn context set {name} --url …` makes one', USAGE)
    contexts.current = name
    _save(contexts)
    typer.echo(f"using {name}: {contexts.contexts[name].url}")


@app.command("list")
def list_contexts(json: JsonOption = False) -> None:
    """List them; the one in use is marked."""
    contexts = _load()
    if json:
        show_json(contexts)
        return
    from rich.table import Table

    table = Table("", "context", "address", "key file", box=None)
    for name, context in contexts.contexts.items():
        mark = "*" if name == contexts.current else ""
        table.add_row(mark, name, context.url, context.key_file or "")
    show_table(table)


@app.command()
def delete(name: NameArgument) -> None:
    """Forget a network; nothing happens to it."""
    contexts = _load()
    if contexts.contexts.pop(name, None) is None:
        fail(f'there is no context "{name}"', USAGE)
    if contexts.current == name:
        contexts.current = None
    _save(contexts)
    typer.echo(f"context {name} is forgotten")
