"""Databases that are refused at the start: one clear line each."""

from __future__ import annotations

import re

import pytest

from edn.errors import InvalidInput
from edn.runtime.postgres import database as module
from edn.runtime.postgres.database import Database, redacted
from edn.runtime.postgres.schema import migrate
from edn.runtime.process import CannotStart
from tests.network.processes import free_port
from tests.postgres import LOCKED, USER, Cluster
from tests.store.conftest import new_database


def refusal(database: Database) -> str:
    with pytest.raises(CannotStart) as refused:
        database.check()
    text = str(refused.value)
    assert "\n" not in text
    return text


def test_a_database_without_a_replica_is_refused_unless_allowed(postgres: Cluster) -> None:
    text = refusal(Database.parse(postgres.url))
    assert "synchronous_standby_names is empty" in text
    assert "--allow-single-database" in text
    Database.parse(postgres.url, allow_single=True).check()


@pytest.mark.parametrize("level", ["off", "local"])
def test_commits_that_do_not_wait_for_a_replica_are_refused(postgres: Cluster, level: str) -> None:
    settings = {"synchronous_standby_names": "one", "synchronous_commit": level}
    with pytest.raises(CannotStart, match=f"synchronous_commit .* got {level}"):
        Database.parse(postgres.url)._check_durability(settings)
    Database.parse(postgres.url)._check_durability({**settings, "synchronous_commit": "on"})


def test_an_old_server_is_refused(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERSION", 99)
    assert re.search(r"must be PostgreSQL 99 or newer, got 1\d", refusal(new_database(postgres)))


def test_a_wrong_password_is_refused_and_not_shown(postgres: Cluster) -> None:
    postgres.execute(f"DROP ROLE IF EXISTS {LOCKED}")
    postgres.execute(f"CREATE ROLE {LOCKED} LOGIN PASSWORD 'right'")
    url = postgres.with_password(LOCKED, "wrong-one")
    text = refusal(Database.parse(url, allow_single=True))
    assert "refused the user or the password" in text
    assert "wrong-one" not in text


def test_missing_privileges_are_named(postgres: Cluster) -> None:
    postgres.execute("DROP ROLE IF EXISTS poor")
    postgres.execute("CREATE ROLE poor LOGIN")
    url = postgres.url.replace(f"{USER}@", "poor@")
    text = refusal(Database.parse(url, "edn_of_poor", allow_single=True))
    assert '"poor" must have the privilege CREATE on the database "postgres"' in text
    postgres.execute("CREATE SCHEMA IF NOT EXISTS edn_of_another")
    text = refusal(Database.parse(url, "edn_of_another", allow_single=True))
    assert 'must have the privileges USAGE and CREATE on the schema "edn_of_another"' in text


def test_a_newer_schema_is_refused(postgres: Cluster) -> None:
    database = new_database(postgres)
    session = database.connect("test")
    try:
        migrate(session, database, "dispatcher", ("CREATE TABLE one (a BIGINT)",))
        migrate(session, database, "dispatcher", ("CREATE TABLE one (a BIGINT)", "DROP TABLE one"))
        with pytest.raises(CannotStart, match="has format 2 of the dispatcher tables"):
            migrate(session, database, "dispatcher", ("CREATE TABLE one (a BIGINT)",))
    finally:
        session.close()


def test_a_server_that_is_read_only_is_refused(postgres: Cluster) -> None:
    postgres.execute("DROP DATABASE IF EXISTS frozen")
    postgres.execute("CREATE DATABASE frozen")
    postgres.execute("ALTER DATABASE frozen SET default_transaction_read_only = on")
    url = postgres.url.replace("/postgres", "/frozen")
    assert "must accept writes" in refusal(Database.parse(url, allow_single=True))


def test_a_server_that_does_not_answer_is_refused() -> None:
    url = f"postgresql://edn@127.0.0.1:{free_port()},127.0.0.1:{free_port()}/edn"
    assert "cannot be reached" in refusal(Database.parse(url))


def test_a_database_that_does_not_exist_is_refused(postgres: Cluster) -> None:
    url = postgres.url.replace("/postgres", "/nothing")
    assert "does not exist" in refusal(Database.parse(url))


@pytest.mark.parametrize(
    ("url", "schema"),
    [
        ("mysql://a/b", "edn"),
        ("edn.db", "edn"),
        ("postgresql://a/b?nonsense=1", "edn"),
        ("postgresql://a/b", "Edn"),
        ("postgresql://a/b", ""),
        ("postgresql://a/b", "pg_edn"),
        ("postgresql://a/b", 'e"; DROP SCHEMA edn'),
    ],
)
def test_a_wrong_url_or_schema_is_invalid(url: str, schema: str) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        Database.parse(url, schema)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@a,b/edn", "postgresql://ann:…@a,b/edn"),
        ("postgresql://a/edn?password=secret&user=ann", "postgresql://a/edn?password=…&user=ann"),
        ("postgresql://ann@a/edn", "postgresql://ann@a/edn"),
    ],
)
def test_messages_show_no_password(url: str, shown: str) -> None:
    assert redacted(url) == shown
