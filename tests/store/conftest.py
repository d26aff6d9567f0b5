"""The engines that the suite runs with: each opens a store in a place of its own, as often as needed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dispatcher.store.event_log import Log
from dispatcher.store.postgres.log import PostgresLog
from dispatcher.store.records import Record
from dispatcher.store.sqlite.log import SqliteLog
from edn.runtime.postgres.database import Database
from edn.runtime.secret_box import SecretBox
from tests.postgres import Cluster

Work = Callable[[Log], Awaitable[None]]

ENGINES = ("sqlite", "postgres")
#: of all stores in PostgreSQL; those in a folder have a key file of their own
BOX = SecretBox([bytes(32)])


@dataclass(slots=True)
class Engine:
    """Opens the same store again and again."""

    place: Path | Database
    #: what `on_commit` has got, in every life
    seen: list[Record] = field(default_factory=list)
    #: seconds of the store's clock
    now: float = 1000.0

    def open(self) -> Log:
        if isinstance(self.place, Database):
            return PostgresLog(self.place, box=BOX, on_commit=self.seen.extend, clock=lambda: self.now)
        return SqliteLog(self.place, on_commit=self.seen.extend, clock=lambda: self.now)

    def run(self, work: Work) -> None:
        """Open the store, work with it, and close it."""

        async def main() -> None:
            log = self.open()
            log.start()
            try:
                await work(log)
            finally:
                await log.stop()

        asyncio.run(main())


def new_database(postgres: Cluster) -> Database:
    """A schema that nobody else uses."""
    return Database.parse(postgres.url, f"edn_{secrets.token_hex(6)}", allow_single=True)


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Database:
    """Where a store is: a folder, or a schema of a database."""
    if request.param == "sqlite":
        return tmp_path
    return new_database(request.getfixturevalue("postgres"))


@pytest.fixture
def engine(place: Path | Database) -> Engine:
    return Engine(place)
