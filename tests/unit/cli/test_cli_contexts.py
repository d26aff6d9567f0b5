"""Names for networks, and what goes before them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edn.cli.app import app

HERE, THERE = "http://127.0.0.1:1", "http://127.0.0.1:2"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path) -> Iterator[None]:
    """Commands set what clients look at; afterwards it is as it was."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("EDN_")]:
        del os.environ[name]
    os.environ["EDN_CONFIG"] = str(tmp_path / "config")
    yield
    os.environ.clear()
    os.environ.update(before)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def asked(*arguments: str) -> str:
    """The address that a command speaks to: nobody listens there, and it says so."""
    os.environ.pop("EDN_URL", None)
    result = run(*arguments, "topic", "list")
    assert result.exit_code == 3, result.output
    return next(url for url in (HERE, THERE, "http://127.0.0.1:8080") if f"{url}" in result.output)


def test_the_first_context_is_in_use_and_another_can_be_chosen(tmp_path: Path) -> None:
    assert run("context", "set", "here", "--url", HERE).exit_code == 0
    assert run("context", "set", "there", "--url", THERE).exit_code == 0
    assert asked() == HERE
    assert run("context", "use", "there").exit_code == 0
    assert asked() == THERE
    assert asked("--context", "here") == HERE
    assert (tmp_path / "config/contexts.json").stat().st_mode & 0o077 == 0


def test_what_is_given_by_hand_goes_before_a_context() -> None:
    run("context", "set", "here", "--url", HERE)
    assert THERE in run("topic", "list", "--url", THERE).output
    os.environ["EDN_URL"] = THERE
    assert THERE in run("topic", "list").output


def test_a_context_brings_its_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("edn_secret\n")
    run("context", "set", "here", "--url", HERE, "--key-file", str(tmp_path / "key"))
    run("topic", "list")
    assert os.environ["EDN_KEY"] == "edn_secret"
    (tmp_path / "key").unlink()
    del os.environ["EDN_KEY"]
    result = run("topic", "list")
    assert result.exit_code == 2
    assert str(tmp_path / "key") in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("--context", "unknown", "topic", "list"),
        ("context", "use", "unknown"),
        ("context", "delete", "unknown"),
        ("context", "set", "bad", "--url", "localhost:8080"),
    ],
)
def test_what_is_wrong_is_said_and_ends_with_2(arguments: tuple[str, ...]) -> None:
    run("context", "set", "here", "--url", HERE)
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.output.startswith("edn: ")


def test_a_context_that_is_deleted_is_in_use_no_more() -> None:
    run("context", "set", "here", "--url", HERE)
    assert run("context", "delete", "here").exit_code == 0
    assert asked() == "http://127.0.0.1:8080"
    assert "here" not in run("context", "list").output


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/contexts.json").write_text("{")
    result = run("context", "list")
    assert result.exit_code == 2
    assert "contexts.json" in result.output
