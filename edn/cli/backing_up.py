"""`edn backup` and `edn restore`: a whole network in a folder, made while it runs, and one made from it.

A backup holds, for each dispatcher and each server, its database as of one moment, and `manifest.json`, which
lists every file with its size and SHA-256. The network's secret is not in it; signing secrets and the digests
of keys are: keep it as you keep those. Each database is checked when it arrives; files, folders and the
manifest are synced before the backup has its name, so a folder of that name is a whole backup.

Restoring checks names, sizes, digests and the databases before it writes anything. It lays out a data folder
as `edn up` has it; the parts can as well be put where other machines keep theirs. Rows that waited for
delivery keep their webhook-ids and go out one by one, and new ones begin far beyond: what the old network
sent after the backup is told again, and never under an id that meant something else. Keys are as of the
backup: one that was revoked since opens the network again, and restoring says so.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.cli.exporting import counting
from edn.runtime.private_files import keep_private
from edn.tools.console import (
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

if TYPE_CHECKING:
    from edn.client import Client

MANIFEST = "manifest.json"
VERSION = 2
#: names of dispatchers and of servers, which become folders
_DISPATCHER = re.compile(r"dispatcher([1-9][0-9]{0,2})?\Z")
_SERVER = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,64}\Z")
_CHUNK = 1 << 20
#: new rows of a restored outbox begin so far beyond the old ones
APART = 1 << 32


def backup(
    folder: Annotated[Path, typer.Argument(help="Where it goes; must not be there yet.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Copy the whole network, while it runs, into a folder."""
    import msgspec

    keep_private()
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
        "files": {},
    }
    files: dict[str, dict[str, Any]] = manifest["files"]

    def fetch(door: Callable[[str, str, Path | None], None], path: str, name: str) -> None:
        door("GET", path, partial / name)
        _check_database(partial / name, name)
        files[name] = _described(partial / name)
        advance(1)

    try:
        with connected(url) as client, counting("copying") as advance:
            doors = [_door(one, client) for one in client.urls]
            try:
                for door in doors:
                    door("POST", "/v1/backup/begin", None)
                for server in client.servers():
                    if server.leaving == "lost":
                        continue
                    if not _SERVER.match(server.id):
                        fail(f'a server is named "{server.id}", which cannot be a folder', REFUSED)
                    fetch(doors[0], f"/v1/servers/{server.id}/backup", _server_file(server.id))
                    manifest["servers"].append(server.id)
                for number, door in enumerate(doors):
                    name = "dispatcher" if not number else f"dispatcher{number + 1}"
                    fetch(door, "/v1/backup", _dispatcher_file(name))
                    manifest["dispatchers"].append(name)
            finally:
                for door in doors:
                    door("POST", "/v1/backup/end", None)
        _write(partial / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        for path in sorted(partial.rglob("*")):
            if path.is_dir():
                _sync(path)
        _sync(partial)
        partial.rename(folder)
        _sync(folder.absolute().parent)
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

    keep_private()
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
    names = _checked(source, manifest)
    keys = 0
    try:
        for name, described in names.items():
            _put(source / name, data / name, described)
        for name in manifest["dispatchers"]:
            keys = _forget_cursors(data / _dispatcher_file(name))
        for name in manifest["servers"]:
            _set_apart(data / _server_file(name))
        for path in (data, *data.rglob("*")):
            if path.is_dir():
                _sync(path)
    except BaseException as error:
        for name in names:
            (data / name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            fail(f"{data} cannot be written: {error.strerror}", REFUSED)
        raise
    if json:
        show_json(
            {"data": str(data), "servers": manifest["servers"], "created": manifest["created"], "keys": keys}
        )
    else:
        say(f"a network of {manifest['created']} in {data}: `edn up --data {data}` starts it")
    if keys:
        say(
            f"warning: its {keys} keys are those of {manifest['created']}. Keys that were revoked since then "
            "are valid again: revoke them with `edn key revoke` before others can reach the network"
        )


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
                    _write(target, answer.iter_bytes())
        except httpx.TransportError as error:
            fail(f"{method} {url}{path}: {error}", REFUSED)

    return call


def _dispatcher_file(name: str) -> str:
    return f"{name}/dispatcher.db"


def _server_file(name: str) -> str:
    return f"servers/{name}/server.db"


def _write(target: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file that only its owner can read, and sync it."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        for chunk in [content] if isinstance(content, bytes) else content:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _described(path: Path) -> dict[str, Any]:
    """What the manifest says of a file."""
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(path):
        digest.update(chunk)
        size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _check_database(path: Path, name: str) -> None:
    try:
        # Immutable: the copy is closed, and a check must not leave files beside it.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as db:
            (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        found = str(error)
    if found != "ok":
        fail(f"{name} is not a whole database: {found}", REFUSED)


def _checked(source: Path, manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The files of a backup, all of them as the manifest describes them; ends the command otherwise."""
    dispatchers, servers = manifest.get("dispatchers"), manifest.get("servers")
    for names, pattern in ((dispatchers, _DISPATCHER), (servers, _SERVER)):
        if not isinstance(names, list) or len(set(map(str, names))) != len(names):
            fail(f"{source / MANIFEST} must list dispatchers and servers by name, once each", USAGE)
        for name in names:
            if not isinstance(name, str) or not pattern.match(name):
                fail(f"{source / MANIFEST} names {str(name)[:80]!r}, which is no dispatcher or server", USAGE)
    assert isinstance(dispatchers, list)
    assert isinstance(servers, list)
    if not dispatchers:
        fail(f"{source / MANIFEST} names no dispatcher", USAGE)
    expected = {*map(_dispatcher_file, dispatchers), *map(_server_file, servers)}
    files = manifest.get("files")
    if not isinstance(files, dict) or set(files) != expected:
        fail(f"{source / MANIFEST} must describe exactly the databases of the network that it names", USAGE)
    for name, described in files.items():
        path = source / name
        if any(part.is_symlink() for part in (path, *path.parents) if source in part.parents):
            fail(f"{path} is a link; a backup holds files only", USAGE)
        if not path.is_file():
            fail(f"{path} is missing: the backup is not whole", USAGE)
        found = _described(path)
        if found != described:
            fail(
                f"{path} is damaged: it must have {described.get('bytes')} bytes and SHA-256 "
                f"{described.get('sha256')}, got {found['bytes']} and {found['sha256']}",
                USAGE,
            )
        _check_database(path, str(path))
    return files


def _put(source: Path, target: Path, described: dict[str, Any]) -> None:
    """Copy a file that was checked; the copy is what was checked, too."""
    _write(target, _chunks(source))
    if _described(target) != described:
        fail(f"{source} changed while it was copied", REFUSED)


def _forget_cursors(database: Path) -> int:
    """Servers were copied before the log: what it notes that they have read since, the copies have not.

    Returns how many keys there are.
    """
    with closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("DELETE FROM cursors")
        db.commit()
        (keys,) = db.execute("SELECT count(*) FROM keys").fetchone()
        return int(keys)


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
