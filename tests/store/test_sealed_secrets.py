"""Stored secrets: nobody finds them in the database, and a new key replaces an old one, also over a crash."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dispatcher.store import signing_keys
from dispatcher.store.event_log import Log, read_records
from dispatcher.store.interface import Transaction
from dispatcher.store.postgres.log import PostgresLog
from dispatcher.store.records import ControlRecord
from dispatcher.store.sqlite.log import SqliteLog
from edn import protocol
from edn.errors import CannotStart, UnreadableSecret
from edn.formats.webhooks import KeyRing, new_secret
from edn.runtime.postgres.database import Database
from edn.runtime.secret_box import SecretBox
from edn.runtime.sql import Resealing, count_sealed
from edn_server.storage import secret_rows, versions
from edn_server.storage.database import SqliteStore
from edn_server.storage.interface import Connection
from edn_server.storage.postgres.store import PostgresStore
from edn_server.storage.store import Store
from edn_server.storage.writer import Call

OLD, NEW = b"o" * 32, b"n" * 32
BEFORE, DURING, AFTER = SecretBox([OLD]), SecretBox([NEW, OLD]), SecretBox([NEW])

Place = Path | Database


def open_log(place: Place, box: SecretBox) -> Log:
    if isinstance(place, Database):
        return PostgresLog(place, box=box)
    return SqliteLog(place, box=box)


def open_store(place: Place, box: SecretBox) -> Store:
    store: Store
    if isinstance(place, Database):
        store = PostgresStore(place, "s1", box=box)
    else:
        store = SqliteStore(place / "server", open_box=lambda: box)
    store.start(lambda _: None, lambda: None)
    return store


def run(place: Place, box: SecretBox, *operations: object) -> list[object]:
    """Open the log, run operations in transactions of their own, and close it."""

    async def main() -> list[object]:
        log = open_log(place, box)
        log.start()
        try:
            return [await log.submit(operation) for operation in operations]  # type: ignore[arg-type]
        finally:
            await log.stop()

    return asyncio.run(main())


def insert(count: int) -> tuple[dict[str, str], object]:
    rings = {f"{number:08x}": new_secret() for number in range(count)}

    def operation(transaction: Transaction) -> None:
        for id, secret in rings.items():
            signing_keys.insert(transaction, id, ("acme", "ann", f"https://example.org/{id}", ""), secret)

    return rings, operation


def secrets_of(connection: Connection) -> dict[str, str]:
    rows = connection.execute("SELECT id FROM rings").fetchall()
    return {ring.id: ring.current for ring in signing_keys.read(connection, [id for (id,) in rows])}


def contents(place: Place) -> bytes:
    """Everything that the store has written, WAL included; of PostgreSQL the rows as text."""
    if isinstance(place, Path):
        return b"".join(path.read_bytes() for path in place.rglob("*.db*") if path.is_file())
    found = []
    with place.connect("test") as session:
        for (table,) in session.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (place.schema,)
        ).fetchall():
            found += session.execute(f'SELECT t::text FROM "{place.schema}"."{table}" t'.encode()).fetchall()
    return "\n".join(text for (text,) in found).encode()


def shows(content: bytes, secret: str) -> bool:
    """Whether somebody who has the content finds the secret, in any usual form."""
    raw = base64.b64decode(secret.removeprefix("whsec_"))
    forms = [secret.removeprefix("whsec_").encode(), raw, raw.hex().encode(), secret.encode().hex().encode()]
    return any(form in content for form in forms)


def test_no_secret_is_in_the_dispatchers_store(place: Place) -> None:
    first, second, given = new_secret(), new_secret(), new_secret()
    ring = KeyRing("ring1", first).rotated(second, 5)

    def operation(transaction: Transaction) -> None:
        signing_keys.insert(transaction, "ring1", ("", "ann", "https://example.org", ""), first)
        signing_keys.insert(transaction, "ring2", ("", "ann", "https://example.org", "abc"), given)
        signing_keys.update(transaction, ring)
        transaction.append_control("s1", "rotate", rings=[ring])

    run(place, BEFORE, operation)
    content = contents(place)
    assert b"example.org" in content
    assert [shows(content, secret) for secret in (first, second, given)] == [False] * 3

    def read(transaction: Transaction) -> object:
        [record] = read_records(transaction.connection, 0, 1 << 20)
        assert isinstance(record, ControlRecord)
        return record.control.rings, signing_keys.read(transaction.connection, ["ring1", "ring2"])

    [(announced, rings)] = run(place, BEFORE, read)  # type: ignore[misc]
    assert announced == [ring]
    assert rings == [ring, KeyRing("ring2", given)]


def test_no_secret_is_in_a_servers_store(place: Place) -> None:
    ring = KeyRing("ring1", new_secret()).rotated(new_secret(), 5)
    store = open_store(place, BEFORE)
    try:
        key = store.identity.key
        store.commit(Call(lambda db: versions.store_rings(db, [ring]))).result()
        content = contents(place)
        assert ring.previous is not None
        assert [shows(content, secret) for secret in (ring.current, ring.previous)] == [False] * 2
        assert b"ring1" in content
        assert key.encode() not in content
    finally:
        store.close()
    again = open_store(place, DURING)
    try:
        assert again.identity.key == key
        sealed = asyncio.run(secret_rows.reseal(again, 60))
        assert sealed == protocol.SealedSecrets(list(DURING.key_ids), {DURING.key_ids[0]: 3}, 3)
    finally:
        again.close()
    final = open_store(place, AFTER)
    assert final.identity.key == key
    final.close()


def test_a_store_does_not_open_without_the_key_of_its_secrets(place: Place) -> None:
    run(place, BEFORE, insert(3)[1])
    missing = f"has 3 secrets that are sealed with key {BEFORE.key_ids[0]}, which is not among the keys"
    with pytest.raises(CannotStart, match=missing):
        open_log(place, AFTER)
    open_store(place, BEFORE).close()
    with pytest.raises(CannotStart, match=missing.replace("3 secrets", "1 secrets")):
        open_store(place, AFTER)
    run(place, DURING)
    open_store(place, DURING).close()


def test_a_secret_that_was_copied_to_another_row_does_not_open(place: Place) -> None:
    def copy(transaction: Transaction) -> None:
        transaction.connection.execute(
            "UPDATE rings SET current = (SELECT current FROM rings WHERE id = '00000000')"
            " WHERE id = '00000001'"
        )

    run(place, BEFORE, insert(2)[1], copy)
    with pytest.raises(UnreadableSecret, match="rings/00000001/current was changed or moved"):
        run(place, BEFORE, lambda transaction: signing_keys.read(transaction.connection, ["00000001"]))


def test_a_secret_that_cannot_be_opened_does_not_keep_others_from_being_sealed(place: Place) -> None:
    _, operation = insert(3)

    def spoil(transaction: Transaction) -> None:
        transaction.connection.execute(
            "UPDATE rings SET current = (SELECT current FROM rings WHERE id = '00000000')"
            " WHERE id = '00000001'"
        )

    def reseal(transaction: Transaction) -> tuple[int, dict[str, int]]:
        resealing = Resealing(signing_keys.SEALED)
        while resealing.step(transaction.connection):
            pass
        return resealing.resealed, count_sealed(transaction.connection, signing_keys.SEALED)

    new, old = DURING.key_ids
    run(place, BEFORE, operation, spoil)
    assert run(place, DURING, reseal, reseal) == [(2, {new: 2, old: 1}), (0, {new: 2, old: 1})]


def test_all_secrets_are_sealed_again_in_steps_and_over_restarts(place: Place) -> None:
    rings, operation = insert(2 * Resealing.STEP + 7)
    run(place, BEFORE, operation)
    old, new = DURING.key_ids[1], DURING.key_ids[0]

    def step(transaction: Transaction) -> bool:
        # A pass of its own, as after a restart.
        return Resealing(signing_keys.SEALED).step(transaction.connection)

    def count(transaction: Transaction) -> dict[str, int]:
        return count_sealed(transaction.connection, signing_keys.SEALED)

    assert run(place, DURING, step, count) == [True, {new: Resealing.STEP, old: Resealing.STEP + 7}]
    with pytest.raises(CannotStart, match=f"sealed with key {old}"):
        open_log(place, AFTER)

    def half(transaction: Transaction) -> None:
        step(transaction)
        raise RuntimeError("the transaction is taken back")

    with pytest.raises(RuntimeError):
        run(place, DURING, half)
    assert run(place, DURING, count) == [{new: Resealing.STEP, old: Resealing.STEP + 7}]
    resealing = Resealing(signing_keys.SEALED)
    steps = [lambda transaction: resealing.step(transaction.connection)] * 4
    assert run(place, DURING, *steps, count)[-1] == {new: len(rings)}
    assert resealing.resealed == Resealing.STEP + 7
    assert run(place, AFTER, lambda transaction: secrets_of(transaction.connection)) == [rings]


CRASH = """
import asyncio, os, sys
from pathlib import Path
from dispatcher.store import signing_keys
from dispatcher.store.sqlite.log import SqliteLog
from edn.runtime.secret_box import SecretBox
from edn.runtime.sql import Resealing

async def main():
    log = SqliteLog(Path(sys.argv[1]), box=SecretBox([b"n" * 32, b"o" * 32]))
    log.start()
    resealing = Resealing(signing_keys.SEALED)
    assert await log.upkeep(lambda transaction: resealing.step(transaction.connection))

    def die(transaction):
        resealing.step(transaction.connection)
        os._exit(9)

    await log.upkeep(die)

asyncio.run(main())
"""


def test_a_crash_during_resealing_loses_no_secret(tmp_path: Path) -> None:
    rings, operation = insert(2 * Resealing.STEP + 7)
    run(tmp_path, BEFORE, operation)
    done = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path)], env=dict(os.environ), timeout=60)
    assert done.returncode == 9
    resealing = Resealing(signing_keys.SEALED)

    def rest(transaction: Transaction) -> int:
        while resealing.step(transaction.connection):
            pass
        return resealing.resealed

    read = [lambda transaction: secrets_of(transaction.connection)]
    assert run(tmp_path, DURING, *read, rest) == [rings, Resealing.STEP + 7]
    assert run(tmp_path, AFTER, *read) == [rings]
