"""`edn backup` and `edn restore`: copy a running network into a folder, and create a network from it.

A backup contains the database of each dispatcher and server, each as of one moment, and `manifest.json` with
the size and SHA-256 of every file. It contains events and digests of API keys, so protect it like those. It
contains neither the network's secret nor the keys of sealed secrets (`edn.runtime.secret_box`): keep the key
file at another place, because nobody can restore signing secrets without it. Each database is checked on
arrival. Files, folders and the manifest are synced before the backup gets its name, so a folder of that name
is a complete backup.

`edn restore` checks names, sizes, digests and databases before it writes anything. It creates a data folder
for `edn up`; its parts can also be copied to several machines. Undelivered outbox rows keep their
webhook-ids, and new rows get ids far beyond: notifications that the old network sent after the backup are
sent again, and no webhook-id is ever used for a different body. API keys that were revoked after the backup
are valid again; the command warns about it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from edn.cli import databases
from edn.cli.databases import DatabaseOption, SchemaOption
from edn.cli.output import show_progress
from edn.errors import CannotStart
from edn.runtime.disk import keep_private
from edn.runtime.secret_box import KEY_FILE, read_key_file
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
    from edn.runtime.postgres.database import Database

MANIFEST = "manifest.json"
VERSION = 2
#: names of dispatchers and servers, which become names of folders
_DISPATCHER = re.compile(r"dispatcher([1-9][0-9]{0,2})?\Z")
_SERVER = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,64}\Z")
_CHUNK = 1 << 20
#: distance between the old and the new ids of outbox rows
ID_GAP = 1 << 32

#: sends a request (method, path) to one dispatcher, and writes the answer to a file
Request = Callable[[str, str, Path | None], None]


class File(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class Manifest(msgspec.Struct):
    version: int = 0
    #: sqlite or postgresql
    engine: str = "sqlite"
    #: of a PostgreSQL schema: rows by table, and formats of its components
    rows: dict[str, int] = {}
    formats: dict[str, int] = {}
    created: str = ""
    dispatchers: list[str] = []
    servers: list[str] = []
    files: dict[str, File] = {}


def backup(
    folder: Annotated[Path, typer.Argument(help="Folder to create; it must not exist.")],
    url: UrlOption = DEFAULT_URL,
    database: DatabaseOption = None,
    database_schema: SchemaOption = "edn",
    json: JsonOption = False,
) -> None:
    """Back up a running network into a folder; with --database, one on PostgreSQL."""
    keep_private()
    if folder.exists():
        fail(f"{folder} exists; a backup needs a new folder", USAGE)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True, mode=0o700)
    manifest = Manifest(VERSION, created=datetime.now(UTC).isoformat())
    if database is not None:
        try:
            _dump(databases.parse(database, database_schema), partial, manifest)
            _finish(partial, folder, manifest)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        size = sum(file.bytes for file in manifest.files.values())
        if json:
            show_json({**msgspec.structs.asdict(manifest), "bytes": size})
        else:
            rows = sum(manifest.rows.values())
            say(f"backed up {len(manifest.rows)} tables, {rows:,} rows, {size / 1e6:,.1f} MB, to {folder}")
        return

    def fetch(request: Request, path: str, name: str) -> None:
        request("GET", path, partial / name)
        _check_database(partial / name, name)
        manifest.files[name] = _describe(partial / name)
        advance(1)

    try:
        with connected(url) as client, show_progress("copying") as advance:
            dispatchers = [_connect(one, client) for one in client.urls]
            try:
                for request in dispatchers:
                    request("POST", "/v1/backup/begin", None)
                for server in client.servers():
                    if server.leaving == "lost":
                        continue
                    if not _SERVER.match(server.id):
                        fail(f'server id "{server.id}" cannot be the name of a folder', REFUSED)
                    fetch(dispatchers[0], f"/v1/servers/{server.id}/backup", _server_file(server.id))
                    manifest.servers.append(server.id)
                for number, request in enumerate(dispatchers):
                    name = "dispatcher" if not number else f"dispatcher{number + 1}"
                    fetch(request, "/v1/backup", _dispatcher_file(name))
                    manifest.dispatchers.append(name)
            finally:
                for request in dispatchers:
                    request("POST", "/v1/backup/end", None)
        _finish(partial, folder, manifest)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    size = sum(file.bytes for file in manifest.files.values())
    if json:
        show_json({**msgspec.structs.asdict(manifest), "bytes": size})
    else:
        say(
            f"backed up {len(manifest.servers)} servers, {size / 1e6:,.1f} MB, to {folder}; keep the file "
            "secret-keys at another place: a restored network needs it"
        )


def _finish(partial: Path, folder: Path, manifest: Manifest) -> None:
    """Writes the manifest, syncs everything and gives the backup its name."""
    _write(partial / MANIFEST, [msgspec.json.format(msgspec.json.encode(manifest))])
    _sync_tree(partial)
    partial.rename(folder)
    _sync(folder.absolute().parent)


def _dump(database: Database, folder: Path, manifest: Manifest) -> None:
    """Copies the tables of a network on PostgreSQL."""
    from edn.runtime.postgres import backup as tables

    manifest.engine = "postgresql"
    with databases.refusing(), show_progress("copying") as advance:
        manifest.rows, manifest.formats = tables.dump(database, folder, _write, advance)
    for path in sorted(folder.glob("*.copy")):
        manifest.files[path.name] = _describe(path)


def _load(source: Path, manifest: Manifest, database: Database) -> tuple[int, int]:
    """Creates a network on PostgreSQL from a backup; returns the numbers of servers and API keys."""
    from edn.runtime.postgres import backup as tables
    from edn.runtime.postgres import transfer

    expected = {f"{table}.copy" for table in manifest.rows}
    if set(manifest.files) != expected:
        fail(f"{source / MANIFEST} must describe exactly the files of its tables", USAGE)
    _check_digests(source, manifest)
    staged = transfer.staging(database)
    with databases.refusing(), show_progress("restoring") as advance:
        transfer.check_free(database)
        transfer.drop(staged)
        databases.prepare_schema(staged)
        tables.load(staged, source, manifest.rows, manifest.formats, advance)
        counts = tables.prepare_restored(staged, ID_GAP)
        transfer.publish(staged, database)
    return counts


def after_restore(
    database: Annotated[str, typer.Argument(help="Database that PostgreSQL's tools restored.")],
    database_schema: SchemaOption = "edn",
) -> None:
    """Prepare a database that was restored by pg_restore or to a point in time, before the network starts."""
    from edn.runtime.postgres import backup as tables

    parsed = databases.parse(database, database_schema)
    with databases.refusing():
        servers, keys = tables.prepare_restored(parsed, ID_GAP)
    say(f"{servers} servers continue with new webhook-ids; start the network")
    _warn_of_keys(keys, "the restored moment")


def _warn_of_keys(keys: int, moment: str) -> None:
    if keys:
        say(
            f"warning: the {keys} API keys are those of {moment}. Keys revoked since then "
            "are valid again: revoke them with `edn key revoke` before others can reach the network"
        )


def restore(
    source: Annotated[Path, typer.Argument(help="Folder of `edn backup`.")],
    data: Annotated[
        Path | None, typer.Argument(help="Data folder to create; it must not exist, or be empty.")
    ] = None,
    secret_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the keys of the old network's stored secrets (its data folder's secret-keys)."
        ),
    ] = None,
    database: DatabaseOption = None,
    database_schema: SchemaOption = "edn",
    json: JsonOption = False,
) -> None:
    """Create a network from a backup, in a folder or on PostgreSQL. Stop the old network for good first."""
    keep_private()
    try:
        manifest = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        fail(f"{source} is not a backup: {error}", USAGE)
    if manifest.version != VERSION:
        fail(f"{source} must be a backup of format {VERSION}, got format {manifest.version}", USAGE)
    if manifest.engine == "postgresql":
        if database is None or data is not None:
            fail(f"{source} is a backup of PostgreSQL: give --database, and no folder", USAGE)
        servers, keys = _load(source, manifest, databases.parse(database, database_schema))
        if json:
            show_json({"servers": servers, "created": manifest.created, "keys": keys})
        else:
            say(f"restored the network of {manifest.created} with {servers} servers; start its processes")
        _warn_of_keys(keys, manifest.created)
        return
    if data is None or database is not None:
        fail(f"{source} is a backup of data folders: give a folder; `edn move-to` moves it then", USAGE)
    if data.exists() and any(data.iterdir()):
        fail(f"{data} is not empty; a restored network needs a new folder", USAGE)
    _check_files(source, manifest)
    if secret_key_file is not None:
        try:
            read_key_file(secret_key_file)
        except CannotStart as error:
            fail(error.detail, USAGE)
    keys = 0
    try:
        if secret_key_file is not None:
            _write(data / KEY_FILE, [secret_key_file.read_bytes()])
        for name, described in manifest.files.items():
            _copy(source / name, data / name, described)
        for name in manifest.dispatchers:
            keys = _reset_cursors(data / _dispatcher_file(name))
        for name in manifest.servers:
            _skip_ids(data / _server_file(name))
        _sync_tree(data)
    except BaseException as error:
        for name in (*manifest.files, KEY_FILE):
            (data / name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            fail(f"cannot write {data}: {error.strerror}", REFUSED)
        raise
    if json:
        show_json({"data": str(data), "servers": manifest.servers, "created": manifest.created, "keys": keys})
    else:
        say(f"restored the network of {manifest.created}; start it with `edn up --data {data}`")
    if secret_key_file is None:
        say(
            f"its signing secrets are sealed: copy the key file of the old network to {data / KEY_FILE} "
            "first, or start it with --secret-key-file"
        )
    _warn_of_keys(keys, manifest.created)


def _connect(url: str, client: Client) -> Request:
    """Returns a function that sends requests with long answers to one dispatcher."""
    import httpx

    http: httpx.Client = client.streaming(url)

    def request(method: str, path: str, target: Path | None) -> None:
        try:
            with http.stream(method, path) as answer:
                if answer.status_code >= 300:
                    answer.read()
                    fail(f"{method} {url}{path}: {answer.status_code} {answer.text[:300]}", REFUSED)
                if target is not None:
                    _write(target, answer.iter_bytes())
        except httpx.TransportError as error:
            fail(f"{method} {url}{path}: {error}", REFUSED)

    return request


def _dispatcher_file(name: str) -> str:
    return f"{name}/dispatcher.db"


def _server_file(name: str) -> str:
    return f"servers/{name}/server.db"


def _write(target: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file that only its owner can read, and syncs it."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Makes the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_tree(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        if path.is_dir():
            _sync(path)


def _describe(path: Path) -> File:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return File(file.tell(), digest)


def _check_database(path: Path, name: str) -> None:
    try:
        # Immutable: the copy is closed, and the check must not create files beside it.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as db:
            (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        found = str(error)
    if found != "ok":
        fail(f"{name} is not an intact database: {found}", REFUSED)


def _check_files(source: Path, manifest: Manifest) -> None:
    """Ends the command unless the backup contains exactly the files of its manifest, intact."""
    where = source / MANIFEST
    for kind, names, pattern in (
        ("dispatcher", manifest.dispatchers, _DISPATCHER),
        ("server", manifest.servers, _SERVER),
    ):
        if len(set(names)) != len(names):
            fail(f"{where} must name each {kind} once", USAGE)
        for name in names:
            if not pattern.match(name):
                fail(f"{where}: {name[:80]!r} is not a valid {kind} name", USAGE)
    if not manifest.dispatchers:
        fail(f"{where} must name a dispatcher", USAGE)
    expected = {*map(_dispatcher_file, manifest.dispatchers), *map(_server_file, manifest.servers)}
    if set(manifest.files) != expected:
        fail(f"{where} must describe exactly the databases of the network that it names", USAGE)
    _check_digests(source, manifest)
    for name in manifest.files:
        _check_database(source / name, str(source / name))


def _check_digests(source: Path, manifest: Manifest) -> None:
    """Ends the command unless all files of the manifest are there, as it describes them."""
    for name, described in manifest.files.items():
        path = source / name
        if any(part.is_symlink() for part in (path, *path.parents) if source in part.parents):
            fail(f"{path} is a link; a backup contains files only", USAGE)
        if not path.is_file():
            fail(f"{path} is missing: the backup is incomplete", USAGE)
        found = _describe(path)
        if found != described:
            fail(
                f"{path} is damaged: it must have {described.bytes} bytes and SHA-256 {described.sha256}, "
                f"got {found.bytes} and {found.sha256}",
                USAGE,
            )


def _copy(source: Path, target: Path, described: File) -> None:
    """Copies a checked file, and checks the copy."""
    with source.open("rb") as file:
        _write(target, iter(functools.partial(file.read, _CHUNK), b""))
    if _describe(target) != described:
        fail(f"{source} changed while it was copied", REFUSED)


def _reset_cursors(database: Path) -> int:
    """Deletes the cursors of servers, whose copies are older than the log; returns the number of API keys."""
    with closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("DELETE FROM cursors")
        db.commit()
        (keys,) = db.execute("SELECT count(*) FROM keys").fetchone()
        return int(keys)


def _skip_ids(database: Path) -> None:
    """Raises the next id of the outbox beyond all ids that the old network may have used."""
    with closing(sqlite3.connect(database)) as db:
        (last,) = db.execute(
            "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'outbox'"
        ).fetchone()
        db.execute("INSERT OR REPLACE INTO meta VALUES ('restored', ?)", (last,))
        db.execute("DELETE FROM sqlite_sequence WHERE name = 'outbox'")
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('outbox', ?)", (last + ID_GAP,))
        db.commit()
