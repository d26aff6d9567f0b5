"""The connection that queries of the stores see, whichever engine is behind it.

Queries are written once, in the part of SQL that SQLite and PostgreSQL share: `?` or `?1` parameters,
`ON CONFLICT`, `RETURNING`, integers in place of booleans, `CAST(? AS …) IS NULL` for a parameter whose type
the engine cannot infer. The methods beyond `execute` express the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

from edn.errors import Unavailable


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
