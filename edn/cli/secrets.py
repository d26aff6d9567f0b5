"""`edn secrets`: the keys that seal stored secrets, and the change to another key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import typer

from edn.cli.output import show_rows
from edn.tools.console import DEFAULT_URL, REFUSED, JsonOption, UrlOption, connected, say, show_json

if TYPE_CHECKING:
    from edn.client import Client, SealedSecrets, SealedStore

app = typer.Typer(help="Show the keys of stored secrets, and change to another key.", no_args_is_help=True)


@app.command("show")
def show(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show the keys of each process, and how many stored secrets each key has sealed."""
    _print(_at_each_dispatcher(url, lambda client: client.secrets()), json)


@app.command("reseal")
def reseal(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Seal all stored secrets again with the first key of each process.

    To replace a key, put a new one in front of the key file, restart the processes, run this command, remove
    the old key and restart them again. An interrupted run can be repeated. Exit code 1 if secrets are left.
    """

    def finish(client: Client) -> SealedSecrets:
        done: dict[str, int] = {}
        while True:
            found = client.reseal_secrets()
            for one in found.processes:
                done[one.process] = done.get(one.process, 0) + one.resealed
            if found.done or not found.resealed:
                total = [msgspec.structs.replace(one, resealed=done[one.process]) for one in found.processes]
                return msgspec.structs.replace(found, processes=total)
            if not json:
                say(f"sealed {found.resealed:,} secrets again, {found.left:,} left")

    processes = _at_each_dispatcher(url, finish)
    _print(processes, json)
    if not _is_done(processes):
        raise typer.Exit(REFUSED)


def _at_each_dispatcher(url: str, call: Callable[[Client], SealedSecrets]) -> list[SealedStore]:
    """Calls every dispatcher: each has secrets of its own, and all of them have the same servers."""
    found: list[SealedStore] = []
    for one in dict.fromkeys(part.strip() for part in url.split(",")):
        with connected(one) as client:
            own, *servers = call(client).processes
        if not found:
            found += servers
        found.insert(0, msgspec.structs.replace(own, process=f"dispatcher {one}"))
    return found


def _is_done(processes: list[SealedStore]) -> bool:
    return not any(one.left or one.failure for one in processes)


def _print(processes: list[SealedStore], json: bool) -> None:
    if json:
        sums = {name: sum(getattr(one, name) for one in processes) for name in ("resealed", "left")}
        show_json({"processes": processes, **sums, "done": _is_done(processes)})
        return
    show_rows(
        ("process", "seals with", "opens also", "secrets by key", "resealed", "left"),
        (
            (
                one.process,
                one.keys[0] if one.keys else "-",
                " ".join(one.keys[1:]) or "-",
                one.failure or " ".join(f"{id}:{count}" for id, count in sorted(one.sealed.items())) or "-",
                f"{one.resealed:,}",
                f"{one.left:,}",
            )
            for one in processes
        ),
        right=("resealed", "left"),
    )
