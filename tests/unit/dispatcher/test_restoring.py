"""What a server whose data folder is an earlier copy is given again before its stream goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from dispatcher.store import directory
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.store.sqlite.log import SqliteLog
from dispatcher.subscriptions.restore import find_missing
from edn import protocol


def row(id: str, version: int, server: str) -> Subscription:
    return Subscription(id, version, "owner", 1, None, "http://h", None, None, server, 1)


def run(folder: Path, operation: Callable[[Transaction], None], look: Callable[[Log], None]) -> None:
    async def whole() -> None:
        log = SqliteLog(folder, on_commit=lambda _: None)
        log.start()
        try:
            await log.submit(operation)
            look(log)
        finally:
            await log.stop()

    asyncio.run(whole())


def test_what_begins_beyond_its_place_and_is_still_there_is_given_again(tmp_path: Path) -> None:
    def operation(transaction: Transaction) -> None:
        def begin(kind: protocol.Kind, id: str, version: int, server: str = "s1") -> None:
            transaction.append_control(server, kind, versions=[(id, version)])

        begin("activate", "read", 1)  # offset 1: the server has read this
        begin("activate", "new", 1)
        begin("activate", "changed", 1)
        begin("change", "changed", 2)
        begin("activate", "ended", 1)
        begin("move", "arrived", 3)
        begin("move", "left", 4)
        begin("activate", "elsewhere", 1, server="s2")
        here = [("read", 1), ("new", 1), ("changed", 2), ("arrived", 3)]
        rows = [
            *(row(id, version, "s1") for id, version in here),
            row("left", 4, "s2"),
            row("elsewhere", 1, "s2"),
        ]
        for one in rows:
            directory.insert(transaction.connection, one, frozenset())
        transaction.connection.execute("INSERT INTO moves VALUES ('arrived', 3, 's2', 's1', 0)")

    def look(log: Log) -> None:
        found = {(one.id, one.version): arriving for one, arriving in find_missing(log._reader, "s1", 1)}
        assert found == {("new", 1): False, ("changed", 2): False, ("arrived", 3): True}
        assert find_missing(log._reader, "s1", log.head) == []

    run(tmp_path, operation, look)
