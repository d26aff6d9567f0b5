"""The wall around the store: SQL and the database's module stand nowhere else in the dispatcher."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

DISPATCHER = Path(__file__).resolve().parents[2] / "dispatcher"
STORE = DISPATCHER / "store"
SQL = re.compile(r"\b(SELECT .* FROM|INSERT INTO|INSERT OR|UPDATE \w+ SET|DELETE FROM|CREATE TABLE|PRAGMA) ")
OUTSIDE = [path for path in sorted(DISPATCHER.rglob("*.py")) if STORE not in path.parents]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(DISPATCHER)))
def test_no_module_outside_the_store_knows_of_a_database(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not SQL.search(node.value), f"SQL in line {node.lineno}"
        elif isinstance(node, ast.Import):
            assert "sqlite3" not in {alias.name for alias in node.names}, f"line {node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            assert node.module != "sqlite3", f"line {node.lineno}"
        elif isinstance(node, ast.Attribute):
            assert node.attr != "executemany", f"line {node.lineno}"


def test_the_store_imports_nothing_else_of_the_dispatcher() -> None:
    for path in sorted(STORE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dispatcher":
                assert str(node.module).startswith("dispatcher.store"), f"{path.name} imports {node.module}"


def test_sql_is_recognised() -> None:
    assert SQL.search("SELECT id FROM subscriptions WHERE id = ?")
    assert SQL.search("DELETE FROM moves WHERE source = ?")
    assert not SQL.search("Selects subscriptions from overloaded servers")
