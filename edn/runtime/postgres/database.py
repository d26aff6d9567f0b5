"""Sessions with a PostgreSQL database, and the reasons to refuse one.

Theory of operation
-------------------
Every wait for the database has a deadline of this process: a paused machine keeps its TCP connections alive,
and keepalives do not end them. After the deadline the connection is dropped, never cancelled: cancelling a
commit that waits for its replica makes the commit visible although no replica has it, and the server reports
success with a warning. `Session.doubtful` shows such a warning.

A session connects to the server of the list that accepts writes (`target_session_attrs`). That alone does
not prove that the server is the primary: a former primary may accept connections too.
`edn.runtime.postgres.lease` proves it by a commit.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo, errors, sql
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper, NumericBinaryLoader
from psycopg.types.string import StrBinaryDumper

from edn.errors import InvalidInput
from edn.runtime.process import CannotStart
from edn.runtime.sql import DatabaseUnavailable

T = TypeVar("T")

#: seconds without an answer after which a session is dropped
COMMIT_SECONDS = 5.0
READ_SECONDS = 60.0
CONNECT_SECONDS = 5
#: oldest version that is supported
VERSION = 15

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")
#: severity and state of the warning that a commit is not replicated
_WARNING = "01000"


class _Whole(NumericBinaryLoader):
    """Sums of integers are integers."""

    def load(self, data: Any) -> Any:
        return int(super().load(data))


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose every wait has a deadline."""

    #: seconds that the server has for an answer
    seconds = READ_SECONDS
    #: whether a commit was acknowledged although its replication is unknown
    doubtful = False

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        limit = self.seconds if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit)
        except errors._WaitTimeout:
            if timeout is not None:
                raise  # the caller waits for something that need not come, such as a notification
            # Not cancelled: see above.
            self.pgconn.finish()
            raise errors.OperationalError(f"no answer within {limit:g} seconds") from None


@dataclass(frozen=True, slots=True)
class Database:
    """The database of a network."""

    url: str
    #: PostgreSQL schema with the network's tables
    schema: str = "edn"
    #: whether it may lack a synchronous replica
    allow_single: bool = False

    @classmethod
    def parse(cls, url: str, schema: str = "edn", *, allow_single: bool = False) -> Database:
        """Checks the URL and the name of the schema; raises `InvalidInput`."""
        if not url.startswith(("postgresql://", "postgres://")):
            raise InvalidInput(f"database must be a URL postgresql://host,host/name, got {redacted(url)!r}")
        try:
            conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            raise InvalidInput(f"database must be a PostgreSQL URL: {_line(error)}") from None
        if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
            raise InvalidInput(
                "the schema must be up to 41 of a-z, 0-9 and _, not beginning with a digit or pg_,"
                f" got {schema[:80]!r}"
            )
        return cls(url, schema, allow_single)

    def __str__(self) -> str:
        return redacted(self.url)

    def connect(self, application: str, *, seconds: float = READ_SECONDS) -> Session:
        """Opens a session in autocommit mode with the network's schema; raises `psycopg.Error`."""
        given = conninfo.conninfo_to_dict(self.url)
        defaults: dict[str, str | int] = {
            "connect_timeout": CONNECT_SECONDS,
            "application_name": application,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
        }
        wanted = conninfo.make_conninfo(
            self.url,
            **{name: value for name, value in defaults.items() if name not in given},
            target_session_attrs="read-write",
        )
        session = Session.connect(wanted, autocommit=True, prepare_threshold=2)
        session.seconds = seconds
        session.prepared_max = 500
        try:
            _adapt(session)
            session.add_notice_handler(lambda notice: _notice(session, notice))
            session.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(self.schema)))
        except BaseException:
            session.close()
            raise
        return session

    def check(self) -> None:
        """Refuses a database that cannot keep the guarantees; raises `CannotStart`."""
        with self.refusing(), contextlib.closing(self.connect("edn: check")) as session:
            number = session.info.server_version
            if number < VERSION * 10_000:
                found = f"{number // 10_000}.{number % 10_000}"
                raise CannotStart(f"the database {self} must be PostgreSQL {VERSION} or newer, got {found}")
            settings = dict(
                session.execute(
                    "SELECT name, setting FROM pg_settings WHERE name IN"
                    " ('server_encoding', 'synchronous_commit', 'synchronous_standby_names', 'fsync')"
                ).fetchall()
            )
            if settings["server_encoding"] != "UTF8":
                raise CannotStart(
                    f"the database {self} must have the encoding UTF8, got {settings['server_encoding']}"
                )
            self._check_durability(settings)
            self._check_privileges(session)

    def _check_durability(self, settings: dict[str, str]) -> None:
        remedy = "; --allow-single-database accepts that acknowledged events are lost with the machine"
        if self.allow_single:
            return
        if not settings["synchronous_standby_names"].strip():
            raise CannotStart(
                f"the database {self} must have a synchronous replica,"
                f" but synchronous_standby_names is empty{remedy}"
            )
        if settings["synchronous_commit"] in ("off", "local"):
            raise CannotStart(
                f"synchronous_commit of the database {self} must be on, remote_write or remote_apply,"
                f" got {settings['synchronous_commit']}{remedy}"
            )

    def _check_privileges(self, session: Session) -> None:
        exists = session.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self.schema,)).fetchone()
        create = (
            "has_schema_privilege(%s, 'USAGE') AND has_schema_privilege(%s, 'CREATE')"
            if exists
            else "has_database_privilege(current_database(), 'CREATE')"
        )
        found = session.execute(
            "SELECT current_user, current_database(), has_database_privilege(current_database(), 'TEMP'),"
            f" {create}",
            (self.schema, self.schema) if exists else (),
        ).fetchone()
        assert found is not None
        user, name, temporary, may_create = found
        if not temporary:
            raise CannotStart(f'the user "{user}" must have the privilege TEMPORARY on the database "{name}"')
        if not may_create and exists:
            raise CannotStart(
                f'the user "{user}" must have the privileges USAGE and CREATE on the schema "{self.schema}"'
            )
        if not may_create:
            raise CannotStart(
                f'the user "{user}" must have the privilege CREATE on the database "{name}",'
                f' or somebody else must create the schema "{self.schema}" for it'
            )

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Turns errors of the database into `CannotStart`, one clear line each."""
        try:
            yield
        except psycopg.Error as error:
            raise CannotStart(self.explain(error)) from None

    def explain(self, error: psycopg.Error) -> str:
        """Returns one line that names the database, the problem and a remedy where there is one."""
        text = _line(error)
        if isinstance(error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification) or any(
            sign in text for sign in ("authentication failed", "no password supplied", "pg_hba.conf")
        ):
            return f"the database {self} refused the user or the password: {text}"
        if "does not exist" in text and "database" in text:
            return f"the database {self} does not exist: create it first: {text}"
        if "read-only" in text or "hot standby" in text:
            return f"the database {self} must accept writes; all servers that answer are read-only: {text}"
        if isinstance(error, errors.InsufficientPrivilege):
            return f"the database {self} refused: {text}"
        if isinstance(error, errors.OperationalError | errors.InterfaceError):
            return f"the database {self} cannot be reached: {text}"
        return f"the database {self} refused: {text}"


def redacted(url: str) -> str:
    """Returns a URL without its password, for messages."""
    hidden = re.sub(r"(?<=://)([^/@:]*):[^/@]*(?=@)", r"\1:…", url)
    return re.sub(r"(?<=password=)[^&]*", "…", hidden)


def _line(error: BaseException) -> str:
    """Returns the text of an error in one line, without repetitions."""
    lines = dict.fromkeys(line.strip() for line in str(error).splitlines() if line.strip())
    wanted = [line for line in lines if not line.startswith(("Multiple connection attempts", "LINE ", "^"))]
    return "; ".join(wanted)[:500] or type(error).__name__


def _adapt(session: Session) -> None:
    """Maps types: integers and booleans to bigint, strings to text, sums to integers."""
    # Both formats: an array of numbers in text would get the type of its first one.
    session.adapters.register_dumper(int, Int8Dumper)
    session.adapters.register_dumper(int, Int8BinaryDumper)
    session.adapters.register_dumper(bool, Int8BinaryDumper)
    session.adapters.register_dumper(str, StrBinaryDumper)
    session.adapters.register_dumper(list, ListBinaryDumper)
    session.adapters.register_loader("numeric", _Whole)


def _notice(session: Session, notice: psycopg.errors.Diagnostic) -> None:
    if notice.sqlstate == _WARNING and notice.severity_nonlocalized == "WARNING":
        session.doubtful = True


def locked(function: Callable[[], T]) -> T | None:
    """Returns the result of a function, None if it waited for a lock for too long."""
    try:
        return function()
    except errors.LockNotAvailable:
        return None


def unavailable(error: psycopg.Error) -> DatabaseUnavailable:
    """Returns the error for callers."""
    return DatabaseUnavailable(f"the database does not answer: {_line(error)}", retry_after=1)
