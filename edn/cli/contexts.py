"""`edn context`: named networks with a URL and a key file.

Contexts are stored in `contexts.json` in the folder EDN_CONFIG, else in $XDG_CONFIG_HOME/edn or
~/.config/edn, readable by the owner only. A context contains paths of files (API key, TLS), never a key.

Precedence: the options `--url` and `--key`; EDN_URL and EDN_KEY; the context of `--context` or EDN_CONTEXT;
the context of `edn context use`; the network on this machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from edn.cli.output import show_rows
from edn.tools.console import USAGE, JsonOption, fail, show_json

app = typer.Typer(help="Manage named networks and switch between them.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]


class Context(msgspec.Struct, frozen=True):
    url: str
    #: file with the API key
    key_file: str | None = None
    #: files for https: the network's authority, the client's certificate and its key
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None


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
        fail(f"cannot read {file}: {error}; repair or delete it", USAGE)


def _save(contexts: _Contexts) -> None:
    file = _file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
        fresh.replace(file)
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}", USAGE)


def enter(name: str | None) -> None:
    """Applies a context, by default the current one, to the environment; existing variables win."""
    if name is None and not _file().exists():
        return
    contexts = _load()
    chosen = name or contexts.current
    if chosen is None:
        return
    context = contexts.contexts.get(chosen)
    if context is None:
        fail(f'context "{chosen}" does not exist; see `edn context list`', USAGE)
    # Every client of this process reads these variables.
    os.environ.setdefault("EDN_URL", context.url)
    # A certificate and its key belong together, and to the network of their context.
    for name, file in (("CA", context.tls_ca), ("CERT", context.tls_cert), ("KEY", context.tls_key)):
        if file is not None:
            os.environ.setdefault(f"EDN_TLS_{name}", file)
    if context.key_file is not None and "EDN_KEY" not in os.environ:
        try:
            os.environ["EDN_KEY"] = Path(context.key_file).read_text().strip()
        except OSError as error:
            fail(f"cannot read {context.key_file}, the key file of context {chosen}: {error.strerror}", USAGE)


@app.command("set")
def set_context(
    name: NameArgument,
    url: Annotated[str, typer.Option("--url", help="URL of the network; separate several with commas.")],
    key_file: Annotated[Path | None, typer.Option(help="File with the API key.")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="Certificate authority, in PEM.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Client certificate, in PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the client certificate.")] = None,
) -> None:
    """Create or change a context. The first one becomes the current one."""
    if not url.startswith(("http://", "https://")):
        fail(f'--url must begin with http:// or https://, got "{url}"', USAGE)
    contexts = _load()
    if (tls_cert is None) != (tls_key is None):
        fail("--tls-cert and --tls-key must be given together", USAGE)
    files = [None if file is None else str(file.absolute()) for file in (key_file, tls_ca, tls_cert, tls_key)]
    contexts.contexts[name] = Context(url, *files)
    contexts.current = contexts.current or name
    _save(contexts)
    typer.echo(f"context {name}: {url}" + (" (current)" if contexts.current == name else ""))


@app.command()
def use(name: NameArgument) -> None:
    """Make a context the current one."""
    contexts = _load()
    if name not in contexts.contexts:
        fail(f'context "{name}" does not exist; create it with `edn context set {name} --url …`', USAGE)
    contexts.current = name
    _save(contexts)
    typer.echo(f"using {name}: {contexts.contexts[name].url}")


@app.command("list")
def list_contexts(json: JsonOption = False) -> None:
    """List contexts. An asterisk marks the current one."""
    contexts = _load()
    if json:
        show_json(contexts)
        return
    show_rows(
        ("", "context", "url", "key file"),
        (
            ("*" if name == contexts.current else "", name, context.url, context.key_file or "")
            for name, context in contexts.contexts.items()
        ),
    )


@app.command()
def delete(name: NameArgument) -> None:
    """Delete a context. The network itself is not touched."""
    contexts = _load()
    if contexts.contexts.pop(name, None) is None:
        fail(f'context "{name}" does not exist', USAGE)
    if contexts.current == name:
        contexts.current = None
    _save(contexts)
    typer.echo(f"deleted context {name}")
