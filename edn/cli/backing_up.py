"""`edn backup` and `edn restore`: a whole network in a folder, made while it runs, and one made from it.

A backup holds, for each dispatcher and each server, its database as of one moment, and `manifest.json`. The
network's secret is not in it; signing secrets and the digests of keys are: keep it as you keep those.

Restoring lays out a data folder as `edn up` has it; the parts can as well be put where other machines keep
theirs. Rows that waited for delivery keep their webhook-ids and go out one by one, and new ones begin far
beyond: what the old network sent after the backup is told again, and never under an id that meant something
else.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.cli.console import (
    DEFAULT_URL,
    REFUSED,
    USAGE,
    JsonOption,
    UrlOption,
    connected,
    fail,
    say,
    show_json,
)
from edn.cli.exporting import counting

if TYPE_CHECKING:
    from edn.client import Client

MANIFEST = "manifest.json"
VERSION = 1
#: new rows of a restored outbox begin so far beyond the old ones
APART = 1 << 32


def backup(
    folder: Annotated[Path, typer.Argument(help="Where it goes; must not be there yet.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Copy the whole network, while it runs, into a folder."""
    import msgspec

    if folder.exists():
        fail(f"{folder} exists; a backup gets a folder of its own", USAGE)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True, mode=0o700)
    manifest: dict[str, Any] = {
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(),
        "dispatchers": [],
        "servers": [],
    }
    try:
        with connected(url) as client, counting("copying") as advance:
            doors = [_door(one, client) for one in client.urls]
            try:
                for door in doors:
                    door("POST", "/v1/backup/begin", None)
                for server in client.servers():
                    if server.leaving == "lost":
                        continue
                    target = partial / "servers" / server.id / "server.db"
                    doors[0]("GET", f"/v1/servers/{server.id}/backup", target)
                    manifest["servers"].append(server.id)
                    advance(1)
                for number, door in enumerate(doors):
                    name = "dispatcher" if not number else f"dispatcher{number + 1}"
                    door("GET", "/v1/backup", partial / name / "dispatcher.db")
                    manifest["dispatchers"].append(name)
                    advance(1)
            finally:
                for door in doors:
                    door("POST", "/v1/backup/end", None)
        (partial / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    size = sum(file.stat().st_size for file in folder.rglob("*.db"))
    if json:
        show_json({**manifest, "bytes": size})
    else:
        say(f"{len(manifest['servers'])} servers, {size / 1e6:,.1f} MB in {folder}")


def restore(
    source: Annotated[Path, typer.Argument(help="A folder of `edn backup`.")],
    data: Annotated[Path, typer.Argument(help="The new data folder; must not be there yet, or be empty.")],
    json: JsonOption = False,
) -> None:
    """Make a data folder for `edn up --data` from a backup. The old network must not run any more."""
    import msgspec

    try:
        manifest = msgspec.json.decode((source / MANIFEST).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        fail(f"{source} is no backup: {error}", USAGE)
    if manifest.get("version") != VERSION:
        fail(
            f"{source} was made by another version of the program ({manifest.get('version')}, this one reads "
            f"{VERSION})",
            USAGE,
        )
    if data.exists() and any(data.iterdir()):
        fail(f"{data} is not empty; a restored network gets a folder of its own", USAGE)
    for name in manifest["dispatchers"]:
        _put(source / name / "dispatcher.db", data / name / "dispatcher.db")
    for name in manifest["servers"]:
        _put(source / "servers" / name / "server.db", data / "servers" / name / "server.db")
        _set_apart(data / "servers" / name / "server.db")
    if json:
        show_json({"data": str(data), "servers": manifest["servers"], "created": manifest["created"]})
    else:
        say(f"a network of {manifest['created']} in {data}: `edn up --data {data}` starts it")


def _door(url: str, client: Client) -> Callable[[str, str, Path | None], None]:
    """Calls to one dispatcher, whose answer may be a long one."""
    import httpx

    http: httpx.Client = client.streaming(url)

    def call(method: str, path: str, target: Path | None) -> None:
        try:
            with http.stream(method, path) as answer:
                if answer.status_code >= 300:
                    answer.read()
                    fail(f"{method} {url}{path}: {answer.status_code} {answer.text[:300]}", REFUSED)
                if target is not None:
                    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    with target.open("wb") as file:
                        for chunk in answer.iter_bytes():
                            file.write(chunk)
                    target.chmod(0o600)
        except httpx.TransportError as error:
            fail(f"{method} {url}{path}: {error}", REFUSED)

    return call


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copyfile(source, target)
    target.chmod(0o600)


def _set_apart(database: Path) -> None:
    """No row that is written from now on has the id of one that the old network may have sent."""
    with closing(sqlite3.connect(database)) as db:
        (last,) = db.execute(
            "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'outbox'"
        ).fetchone()
        db.execute("INSERT OR REPLACE INTO meta VALUES ('restored', ?)", (last,))
        db.execute("DELETE FROM sqlite_sequence WHERE name = 'outbox'")
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('outbox', ?)", (last + APART,))
        db.commit()
