"""Options and steps of commands that use the network's PostgreSQL database directly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edn.errors import EdnError
from edn.tools.console import REFUSED, USAGE, fail

if TYPE_CHECKING:
    from edn.runtime.postgres.database import Database

DatabaseOption = Annotated[
    str | None, typer.Option("--database", help="PostgreSQL database of the network.", metavar="URL")
]
SchemaOption = Annotated[
    str, typer.Option("--database-schema", help="PostgreSQL schema with the tables of the network.")
]


def parse(url: str, schema: str) -> Database:
    """Checks the location of a database; ends the command if it is wrong."""
    try:
        from edn.runtime.postgres.database import Database
    except ImportError:
        fail("the driver of PostgreSQL is missing: pip install 'edn[postgres]'", USAGE)
    try:
        return Database.parse(url, schema, allow_single=True)
    except EdnError as error:
        fail(error.detail, USAGE)


@contextmanager
def refusing() -> Iterator[None]:
    """Ends the command with one line if the database or the network refuses."""
    try:
        yield
    except EdnError as error:
        fail(error.detail, REFUSED)


def prepare(service: str, *where: str) -> None:
    """Creates the empty store of a dispatcher or server, by its own program."""
    command = [sys.executable, "-m", f"{service}.prepare_store", *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(done.stderr.strip() or f"{service} could not create its tables", REFUSED)


def prepare_schema(database: Database) -> None:
    """Creates all tables of a network in an empty schema."""
    for service in ("dispatcher", "edn_server"):
        prepare(service, database.url, database.schema)


def prepare_folder(service: str, folder: Path) -> None:
    prepare(service, str(folder))
