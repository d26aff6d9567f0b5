"""The engines that the suite runs with: each opens a store in a place of its own, as often as needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dispatcher.store.event_log import Log
from dispatcher.store.records import Record
from dispatcher.store.sqlite.log import SqliteLog

Work = Callable[[Log], Awaitable[None]]


@dataclass(slots=True)
class Engine:
    """Opens the same store again and again."""

    place: Path
    #: what `on_commit` has got, in every life
    seen: list[Record] = field(default_factory=list)
    #: seconds of the store's clock
    now: float = 1000.0

    def open(self) -> Log:
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


@pytest.fixture(params=["sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    assert request.param == "sqlite"
    return Engine(tmp_path / "store")
