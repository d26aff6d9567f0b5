"""The connection that queries of the stores see, whichever engine is behind it, and sealed columns.

Queries are written once, in the part of SQL that SQLite and PostgreSQL share: `?` or `?1` parameters,
`ON CONFLICT`, `RETURNING`, integers in place of booleans, `CAST(? AS …) IS NULL` for a parameter whose type
the engine cannot infer. The methods beyond `execute` express the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import structlog

from edn.errors import CannotStart, Unavailable, UnreadableSecret
from edn.runtime.secret_box import KEYS_VARIABLE, SecretBox

logger = structlog.get_logger()


class DatabaseUnavailable(Unavailable):
    """The database does not answer, or refused a transaction."""


class Fenced(DatabaseUnavailable):
    """Another process owns the log or the shard; this one must stop."""


class InDoubt(DatabaseUnavailable):
    """The outcome of a commit is unknown."""


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """One connection to a database, for one thread at a time."""

    #: seals and opens the secrets in its rows
    box: SecretBox

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows: ...
    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Rows: ...
    def close(self) -> None: ...

    def any_of(self, column: str, parameter: int | None = None) -> str:
        """Return the condition that a column has one of the values of an `array`, which is one parameter.

        `parameter`: its number, for a statement whose parameters have numbers.
        """
        ...

    def array(self, values: Collection[Any]) -> Any:
        """Return the parameter of `any_of`."""
        ...

    def indexed(self, table: str, index: str) -> str:
        """Return a table for FROM that is read through an index; a hint for engines that need one."""
        ...

    def insert_new(self, table: str, key: str, rows: Sequence[Sequence[Any]], returning: str) -> list[Any]:
        """Insert the rows whose key does not exist; return a column of the inserted ones."""
        ...

    def last_id(self, table: str) -> int:
        """Return the newest id that a table has ever had; 0 before the first row."""
        ...

    def next_ids(self, table: str, count: int) -> int:
        """Return the first of new, consecutive ids; insert rows with these ids before the next call."""
        ...

    def skip_id(self, table: str) -> int:
        """Return a new id that no row will have; the table has had a row."""
        ...

    def dump(self, value: Any) -> Any:
        """Return the stored form of a value for a column without a type: a number or a string."""
        ...

    def load(self, value: Any) -> Any:
        """Return a value from its stored form."""
        ...


# -- sealed columns --------------------------------------------------------------------------------------


class SealedColumn(NamedTuple):
    """A column whose values are sealed (`edn.runtime.secret_box`), or NULL."""

    table: str
    #: the primary key, text; part of the context, so that no row opens the secret of another
    key: str
    column: str

    def seal(self, connection: Connection, key: str, secret: str | None) -> bytes | None:
        return None if secret is None else connection.box.seal(secret.encode(), self._context(key))

    def open(self, connection: Connection, key: str, sealed: bytes | None) -> str | None:
        """Returns the secret in a row; raises `UnreadableSecret`."""
        return None if sealed is None else self.require(connection, key, sealed)

    def require(self, connection: Connection, key: str, sealed: bytes) -> str:
        return connection.box.open(bytes(sealed), self._context(key)).decode()

    def _context(self, key: str) -> str:
        return f"{self.table}/{key}/{self.column}"

    def seal_again(self, connection: Connection, after: str, most: int) -> tuple[int, str | None]:
        """Seals up to `most` values of other keys with the first key, in the order of the primary key.

        Returns their number, and where to go on, None at the end; to be called in a transaction. A value that
        cannot be opened stays as it is, so that it does not keep the others from being sealed.
        """
        box = connection.box
        rows = connection.execute(
            f"SELECT {self.key}, {self.column} FROM {self.table} WHERE {self.key} > ?"
            f" AND {self.column} IS NOT NULL AND substr({self.column}, 1, {len(box.prefix)}) != ?"
            f" ORDER BY {self.key} LIMIT {most}",
            (after, box.prefix),
        ).fetchall()
        fresh: list[tuple[bytes | None, str]] = []
        for key, sealed in rows:
            try:
                secret = self.require(connection, key, sealed)
            except UnreadableSecret as error:
                logger.error("secret_unreadable", reason=error.detail)
            else:
                fresh.append((self.seal(connection, key, secret), key))
        connection.executemany(f"UPDATE {self.table} SET {self.column} = ? WHERE {self.key} = ?", fresh)
        return len(fresh), rows[-1][0] if len(rows) == most else None


class Resealing:
    """Seals the values of all other keys with the first key, in steps of one transaction each.

    A new pass finds whatever an interrupted one has left, because every value names its key.
    """

    #: values per transaction
    STEP = 500

    def __init__(self, columns: Sequence[SealedColumn]) -> None:
        self._columns = list(columns)
        self._after = ""
        self.resealed = 0

    def step(self, connection: Connection) -> bool:
        """Seals some values again; returns whether more may follow. To be called in a transaction."""
        if not self._columns:
            return False
        count, after = self._columns[0].seal_again(connection, self._after, self.STEP)
        self.resealed += count
        if after is None:
            self._columns.pop(0)
        self._after = after or ""
        return bool(self._columns)


def count_sealed(connection: Connection, columns: Sequence[SealedColumn]) -> dict[str, int]:
    """Returns the number of sealed values by the id of their key."""
    counts: dict[str, int] = {}
    for table, _, column in columns:
        prefix = f"substr({column}, 1, {len(connection.box.prefix)})"
        for beginning, count in connection.execute(
            f"SELECT {prefix}, count(*) FROM {table} WHERE {column} IS NOT NULL GROUP BY {prefix}"
        ):
            id = bytes(beginning)[1:].hex()
            counts[id] = counts.get(id, 0) + count
    return counts


def check_keys(connection: Connection, columns: Sequence[SealedColumn], place: str) -> None:
    """Raises `CannotStart` if a stored secret is sealed with a key that this process does not have."""
    box = connection.box
    for id, count in count_sealed(connection, columns).items():
        if id not in box.key_ids:
            raise CannotStart(
                f"{place} has {count} secrets that are sealed with key {id}, which is not among the keys of "
                f"this process ({', '.join(box.key_ids)}); add it to --secret-key-file or {KEYS_VARIABLE}"
            )
