"""The engine of the networks of a test: data folders, or schemas of a PostgreSQL server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import sql

from tests.faults import leases
from tests.network.processes import Network

if TYPE_CHECKING:
    from tests.postgres import Cluster

EngineName = Literal["sqlite", "postgresql"]
#: seconds of a lease, so that a process that is started again after a kill waits for less
_LEASE_SECONDS = "2"


@dataclass(frozen=True, slots=True)
class Engine:
    name: EngineName
    #: the server of "postgresql"
    cluster: Cluster | None = None

    def network(self, folder: Path, servers: int, **options: Any) -> Network:
        """Return a network, not started, on this engine; for the options see `Network`."""
        if self.cluster is None:
            return Network(folder, servers, **options)
        environment = {leases.VARIABLE: _LEASE_SECONDS, **(options.pop("environment", None) or {})}
        database = self.cluster.network_options()
        return Network(folder, servers, database=database, environment=environment, **options)

    def contents(self, network: Network) -> dict[str, bytes]:
        """Return all that the processes of a network have stored or logged, by file and by table."""
        found = {str(path): path.read_bytes() for path in network.folder.rglob("*") if path.is_file()}
        if self.cluster is not None:
            schema = network.database[network.database.index("--database-schema") + 1]
            with psycopg.connect(self.cluster.url) as session:
                tables = session.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,))
                for (table,) in tables.fetchall():
                    query = sql.SQL("COPY {} TO STDOUT (FORMAT BINARY)").format(sql.Identifier(schema, table))
                    with session.cursor().copy(query) as copy:
                        found[table] = b"".join(bytes(part) for part in copy)
        return found
