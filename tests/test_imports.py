"""The direction of dependence: who may import whom, read from the sources and not from a running program."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: what each package may import of ours, besides itself
ALLOWED: dict[str, frozenset[str]] = {
    "edn": frozenset(),
    "dispatcher": frozenset({"edn", "selftune", "partitioning"}),
    "edn_server": frozenset({"edn", "partitioning"}),
    "selftune": frozenset({"edn"}),
    "partitioning": frozenset({"edn"}),
    "evaluation": frozenset({"edn", "partitioning", "selftune"}),
    "load": frozenset({"edn"}),
}
#: the only modules that may import httpx, by the beginning of their names; the services share one
HTTPX = ("edn.client", "edn.cli", "edn.bench", "edn.runtime.control_client", "evaluation", "load")
#: the only modules that may import Spark, by the beginning of their names
SPARK = ("partitioning.planner", "partitioning.spark")


def imports(source: str, module: str) -> set[str]:
    """Full names of all that a module's source imports, inside functions too; relative ones made absolute."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            found.update(f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = ast.unparse(node.func)
            if name in ("importlib.import_module", "import_module", "__import__"):
                found.add(str(node.args[0].value))
    return found


def modules(package: str) -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def offences(package: str) -> list[str]:
    ours = set(ALLOWED) | {"tests"}
    found = []
    for module, path in modules(package).items():
        # A package's own __init__ resolves its relative imports from itself, not from its parent.
        name = f"{module}.__init__" if path.stem == "__init__" else module
        for imported in sorted(imports(path.read_text(), name)):
            top = imported.split(".")[0]
            if top in ours and top != package and top not in ALLOWED[package]:
                found.append(f"{module} imports {imported}")
            if top == "pyspark" and not module.startswith(SPARK):
                found.append(f"{module} imports {imported}; only {' and '.join(SPARK)} may")
            if top == "httpx" and not module.startswith(HTTPX):
                found.append(f"{module} imports httpx; services use edn.runtime.control_client")
            if package != "partitioning" and imported.startswith(SPARK):
                found.append(f"{module} imports {imported}, which needs Spark")
    return found


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    assert offences(package) == []


def test_the_oracle_shares_no_code_with_the_product() -> None:
    for module, path in modules("tests/oracle").items():
        ours = {name for name in imports(path.read_text(), module) if name.split(".")[0] in ALLOWED}
        assert ours == set(), f"{module} imports {ours}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import dispatcher.app", {"dispatcher.app"}),
        ("def f():\n    from edn_server import store", {"edn_server.store"}),
        ("from . import rect", {"edn.rect"}),
        ("from ..errors import NotFound", {"errors.NotFound"}),
        ("import importlib\nimportlib.import_module('pyspark.sql')", {"importlib", "pyspark.sql"}),
        ("x = 'import dispatcher'", set()),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, expected: set[str]) -> None:
    assert imports(source, "edn.filter") == expected
