"""A transaction that PostgreSQL refuses has no effect on later ones of the same session."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.store.interface import Transaction
from dispatcher.store.postgres.log import PostgresLog
from edn.runtime.sql import DatabaseUnavailable
from tests.postgres import Cluster
from tests.store.conftest import BOX, new_database

_STATEMENT = "UPDATE meta SET value = value WHERE key = ?"


def refused(transaction: Transaction) -> None:
    transaction.connection.execute("DELETE FROM meta WHERE 1 / (1 - 1) = 1")
    transaction.connection.execute(_STATEMENT, ("clock",))


def accepted(transaction: Transaction) -> None:
    transaction.connection.execute(_STATEMENT, ("clock",))


@pytest.mark.parametrize("before", range(5))
def test_a_statement_of_a_refused_transaction_can_be_used_again(postgres: Cluster, before: int) -> None:
    """The driver prepares a statement after some uses: maybe in the transaction that is refused.

    The first two refusals come before anything is prepared.
    """
    log = PostgresLog(new_database(postgres), box=BOX)

    async def main() -> None:
        log.start()
        for uses in (0, 0, before, before):
            for _ in range(uses):
                await log.submit(accepted, changes=False)
            with pytest.raises(DatabaseUnavailable, match="division by zero"):
                await log.submit(refused, changes=False)
        for _ in range(5):
            await log.submit(accepted, changes=False)
        await log.stop()

    asyncio.run(main())
