"""Settings of sinks in the stores of both engines: credentials, settings by id, rows that are aside."""

from __future__ import annotations

import asyncio

from dispatcher.store import directory
from dispatcher.store.interface import Transaction
from edn.formats import sink_settings
from edn.formats.sink_settings import Bearer, SinkSettings
from edn_server.storage import outbox, versions
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Aside
from edn_server.storage.versions import StoredSink
from edn_server.storage.writer import Call
from tests.store.test_sealed_secrets import BEFORE, Place, contents, open_store, run

PLAIN = sink_settings.encode_credentials(Bearer("a token that nobody may read"))
SETTINGS = SinkSettings(credentials="bearer", headers={"x": "1"}).with_id(b"a")


def row(id: str, settings: str) -> directory.Subscription:
    return directory.Subscription(
        id=id, version=1, owner="o", topic=1, filter=None, url="https://example.org/", recipient=None,
        expires=None, server="s1", created=1, settings=settings,
    )  # fmt: skip


def test_the_directory_keeps_settings_and_seals_credentials_until_nobody_uses_them(place: Place) -> None:
    text = sink_settings.encode(SETTINGS)

    def store(transaction: Transaction) -> None:
        connection = transaction.connection
        directory.store_credentials(connection, {SETTINGS.id: PLAIN, "unused": PLAIN}, 5)
        directory.store_credentials(connection, {SETTINGS.id: PLAIN}, 10)  # again, for another subscription
        directory.insert(connection, row("s", text), frozenset())

    def check(transaction: Transaction) -> None:
        connection = transaction.connection
        found = directory.find(connection, "s")
        assert found is not None
        assert found.settings == text
        assert directory.read_credentials(connection, [text, ""]) == {SETTINGS.id: PLAIN}
        assert directory.unused_credentials(connection, 5) == []
        assert directory.unused_credentials(connection, 6) == ["unused"]
        directory.delete_credentials(connection, ["unused"], 6)
        assert directory.unused_credentials(connection, 100) == []
        directory.replace(connection, row("s", ""), frozenset())
        assert directory.unused_credentials(connection, 100) == [SETTINGS.id]
        directory.delete_credentials(connection, [SETTINGS.id], 10)  # stored again since then
        assert directory.read_credentials(connection, [text]) == {SETTINGS.id: PLAIN}
        directory.delete_credentials(connection, [SETTINGS.id], 11)
        assert directory.read_credentials(connection, [text]) == {}

    run(place, BEFORE, store)
    assert b"nobody may read" not in contents(place)
    run(place, BEFORE, check)


def test_a_server_keeps_settings_while_a_version_names_them(place: Place) -> None:
    async def main() -> None:
        server = open_store(place, BEFORE)
        stored = StoredSink(SETTINGS, PLAIN)
        plain = StoredSink(SinkSettings(rate=5.0).with_id(b""), None)

        def store(db: Connection) -> list[StoredSink]:
            versions.store_sinks(db, [stored, plain])
            versions.store_sinks(db, [stored])
            for number, sink in enumerate((stored, plain)):
                db.execute(
                    "INSERT INTO versions (number, id, version, owner, topic, filter, address, log,"
                    " incarnation, width, rects, ring, settings)"
                    " VALUES (?, ?, 1, 'o', 1, '', '', 'l', 1, 0, CAST('' AS BLOB), '', ?)",
                    (number, f"s{number}", sink.settings.id),
                )
            return sorted(versions.sinks(db), key=lambda sink: sink.credentials or "")

        def forget(db: Connection) -> list[StoredSink]:
            db.execute("DELETE FROM versions WHERE number = 0")
            return versions.sinks(db)

        try:
            assert await server.committed(Call(store)) == [plain, stored]
            assert await server.committed(Call(forget)) == [plain]
        finally:
            server.close()

    asyncio.run(main())
    assert b"nobody may read" not in contents(place)


def test_rows_that_are_aside_are_found_by_their_address(place: Place) -> None:
    async def main() -> None:
        server = open_store(place, BEFORE)

        def work(db: Connection) -> list[Aside]:
            for address in ("//a", "//a", "//b"):
                outbox.write_body(db, address, b"{}", 1, created=1)
            first = outbox.page(db, "//a", 10).rows
            outbox.put_aside(db, Aside(first[1].id, 3, 99))
            assert len(outbox.page(db, "//a", 10).rows) == 2
            assert outbox.asides(db, "//b") == []
            found = outbox.asides(db, "//a")
            assert [aside.id for aside in found] == [first[1].id]
            outbox.settle(db, [(first[1].id, None)])
            assert outbox.asides(db, "//a") == []
            return found

        try:
            [aside] = await server.committed(Call(work))
            assert (aside.attempts, aside.due) == (3, 99)
        finally:
            server.close()

    asyncio.run(main())
