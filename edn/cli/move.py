"""`edn move-to`: moves a stopped network from its data folder to PostgreSQL, or back.

Everything is copied: events, offsets, cursors, subscriptions, signing keys, undelivered notifications with
their webhook-ids. The copy gets its name when it is complete and its rows are counted; until then nothing at
the target exists, and an interrupted command can be repeated. The source is not changed.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edn.cli import databases
from edn.cli.databases import DatabaseOption, SchemaOption
from edn.cli.output import number, show_progress, show_rows
from edn.runtime.disk import keep_private
from edn.tools.console import REFUSED, USAGE, JsonOption, fail, say, show_json

if TYPE_CHECKING:
    from edn.runtime.postgres.database import Database
    from edn.runtime.postgres.transfer import Part

_PREFIXES = ("postgresql://", "postgres://")


def move_to(
    target: Annotated[str, typer.Argument(help="postgresql://host,host/name, or a data folder to create.")],
    data: Annotated[Path, typer.Option(help="Data folder to move to PostgreSQL.")] = Path(".edn"),
    database: DatabaseOption = None,
    database_schema: SchemaOption = "edn",
    json: JsonOption = False,
) -> None:
    """Move a stopped network to PostgreSQL, or with --database from PostgreSQL to a data folder."""
    keep_private()
    if target.startswith(_PREFIXES):
        if database is not None:
            fail("--database must not be given together with a target in PostgreSQL", USAGE)
        parts = _to_database(data, databases.parse(target, database_schema))
        start = f"edn up --database {databases.parse(target, database_schema)}"
        source = str(data)
    else:
        if database is None:
            fail("--database must name the database of the network, if the target is a folder", USAGE)
        parts = _to_folder(databases.parse(database, database_schema), Path(target))
        start = f"edn up --data {target}"
        source = f'the schema "{database_schema}"'
    if json:
        show_json({"parts": [{"kind": part.kind, "id": part.name, "rows": part.rows} for part in parts]})
        return
    show_rows(
        ("part", "id", "rows"),
        (("server" if part.kind == "shard" else "log", part.name, number(part.total)) for part in parts),
        right=("rows",),
    )
    say(f"moved and counted; start it with `{start}`")
    say(f"never start {source} again: it would send notifications that the moved network has sent")


def _to_database(data: Path, database: Database) -> list[Part]:
    from edn.runtime import disk
    from edn.runtime.postgres import transfer

    servers = _check_folder(data)
    parts: list[Part] = []
    staged = transfer.staging(database)
    with ExitStack() as stack, databases.refusing():
        _lock(stack, data, *(data / "servers" / name for name in servers))
        transfer.check_free(database)
        transfer.drop(staged)
        databases.prepare_schema(staged)
        with show_progress("copying") as advance:
            with closing(disk.connect(data / "dispatcher" / "dispatcher.db", read_only=True)) as db:
                parts.append(transfer.load_part(db, staged, "log", None, advance))
            for name in servers:
                with closing(disk.connect(data / "servers" / name / "server.db", read_only=True)) as db:
                    parts.append(transfer.load_part(db, staged, "shard", name, advance))
        transfer.publish(staged, database)
    return parts


def _check_folder(data: Path) -> list[str]:
    """Returns the servers of a data folder; ends the command unless it has one dispatcher."""
    if not (data / "dispatcher" / "dispatcher.db").is_file():
        fail(f"{data} must be the data folder of a network, with dispatcher/dispatcher.db", USAGE)
    return sorted(path.parent.name for path in (data / "servers").glob("*/server.db"))


def _lock(stack: ExitStack, data: Path, *folders: Path) -> None:
    """Locks the folders of a network; raises `CannotStart` if one of its processes runs."""
    from edn.runtime.process import lock_folder

    for folder in (data, data / "dispatcher", *folders):
        stack.callback(os.close, lock_folder(folder))


def _to_folder(database: Database, target: Path) -> list[Part]:
    from edn.runtime import disk
    from edn.runtime.postgres import transfer

    if target.exists():
        fail(f"{target} exists; a network needs a new folder", USAGE)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with databases.refusing(), show_progress("copying") as advance:
            with transfer.Snapshot(database) as snapshot:
                snapshot.check_stopped()
                parts = snapshot.parts()
                logs = [part for part in parts if part.kind == "log"]
                if len(logs) != 1:
                    fail(
                        f"a network in a folder has one dispatcher, but this one has {len(logs)} logs:"
                        " run one dispatcher alone until `edn status` shows only its log, then stop it",
                        REFUSED,
                    )
                for part in parts:
                    is_log = part.kind == "log"
                    folder = partial / "dispatcher" if is_log else partial / "servers" / part.name
                    databases.prepare_folder("dispatcher" if is_log else "edn_server", folder)
                    file = folder / ("dispatcher.db" if is_log else "server.db")
                    with closing(disk.connect(file)) as db:
                        snapshot.save_part(part, db, advance)
                before = snapshot.states()
            with transfer.Snapshot(database) as snapshot:
                if snapshot.states() != before:
                    fail("the network must be stopped, but a process has changed it during the copy", REFUSED)
        _sync(partial)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return parts


def _sync(folder: Path) -> None:
    """Makes all files and names in a folder durable."""
    for path in (*folder.rglob("*"), folder, folder.absolute().parent):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
