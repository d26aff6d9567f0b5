"""The rules of the house, read from the sources: who imports whom, where SQL stands, who may do I/O.

Each rule is a function from sources to offences. `test_a_planted_violation_is_found` gives every rule a
source that breaks it, so that a rule that finds nothing is known to look.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: sources by module name; `edn.model` is the `__init__` of that package
Sources = Mapping[str, str]

#: What each top-level package may import of ours, besides itself.
TOPS: dict[str, frozenset[str]] = {
    "edn": frozenset(),
    "dispatcher": frozenset({"edn", "selftune", "partitioning"}),
    "edn_server": frozenset({"edn", "partitioning"}),
    "selftune": frozenset({"edn"}),
    "partitioning": frozenset({"edn"}),
    "evaluation": frozenset({"edn", "partitioning", "selftune"}),
    "load": frozenset({"edn"}),
}

#: What each package inside a top-level package may import of its siblings. `""` are the modules at the top.
LAYERS: dict[str, dict[str, frozenset[str]]] = {
    "edn": {
        "formats": frozenset(),
        "model": frozenset({"formats"}),
        "index": frozenset({"model", "formats"}),
        "summary": frozenset({"index", "model"}),
        "protocol": frozenset({"formats", "index", "model"}),
        "api": frozenset({"formats", "model"}),
        "http": frozenset({"formats", "model"}),
        "runtime": frozenset({"formats", "http", "model"}),
        "brokers": frozenset({"formats", "http", "runtime"}),
        "client": frozenset({"api", "formats", "model"}),
        # Modules at the top that some packages may import.
        "__version__": frozenset(),
        "tools": frozenset(
            {
                "api",
                "client",
                "formats",
                "http",
                "index",
                "model",
                "protocol",
                "runtime",
                "summary",
            }
        ),
        "cli": frozenset({"__version__", "api", "client", "formats", "index", "model", "runtime", "tools"}),
    },
    "dispatcher": {
        "store": frozenset(),
        "auth": frozenset({"store"}),
        "routing": frozenset({"store"}),
        "servers": frozenset({"routing", "store"}),
        "subscriptions": frozenset({"auth", "routing", "servers", "store"}),
        "advertisements": frozenset({"auth", "routing", "servers", "store", "subscriptions"}),
        "sources": frozenset({"auth", "servers", "store", "subscriptions"}),
        "tuning": frozenset({"routing", "servers", "store"}),
        "rebalance": frozenset({"routing", "servers", "store", "subscriptions"}),
        "network": frozenset({"auth", "rebalance", "routing", "servers", "store", "subscriptions"}),
        "observe": frozenset({"advertisements", "routing", "servers", "store", "subscriptions", "tuning"}),
        "api": frozenset(
            {
                "advertisements",
                "auth",
                "network",
                "observe",
                "rebalance",
                "routing",
                "servers",
                "sources",
                "store",
                "subscriptions",
                "tuning",
            }
        ),
    },
    "edn_server": {
        "storage": frozenset(),
        "subscriptions": frozenset({"storage"}),
        "outbox": frozenset({"storage", "subscriptions"}),
        "sequences": frozenset({"outbox", "storage", "subscriptions"}),
        "ingest": frozenset({"outbox", "sequences", "storage", "subscriptions"}),
        "handover": frozenset({"ingest", "outbox", "sequences", "storage", "subscriptions"}),
        "sinks": frozenset({"outbox", "storage", "subscriptions"}),
        "delivery": frozenset({"outbox", "sinks", "storage", "subscriptions"}),
        "dispatchers": frozenset({"storage", "subscriptions"}),
        "observe": frozenset({"delivery", "ingest", "outbox", "sinks", "storage", "subscriptions"}),
        "api": frozenset(
            {
                "delivery",
                "dispatchers",
                "handover",
                "ingest",
                "observe",
                "outbox",
                "sinks",
                "storage",
                "subscriptions",
            }
        ),
    },
}

#: Modules at the top of a package that every one of its packages may import.
SHARED = {
    "edn": frozenset({"errors", "arrays"}),
    "dispatcher": frozenset({"config"}),
    "edn_server": frozenset({"config", "policies"}),
}

#: The only places of these libraries, by the beginning of a module's name.
PLACES: dict[str, tuple[str, ...]] = {
    "sqlite3": ("dispatcher.store", "edn_server.storage", "edn.runtime.sqlite_writer", "edn.runtime.disk"),
    "psycopg": ("edn.runtime.postgres",),
    "fastapi": (
        "dispatcher.api",
        "dispatcher.app",
        "edn_server.api",
        "edn_server.app",
        "edn.runtime",
        "edn.http",
    ),
    "pydantic": (
        "dispatcher.api",
        "dispatcher.config",
        "edn_server.api",
        "edn_server.config",
        "edn.runtime",
        "edn.http",
        "edn.api.document",
    ),
    "httpx": ("edn.client", "edn.http.control_client"),
    "aio_pika": ("edn.brokers.amqp",),
    "aiomqtt": ("edn.brokers.mqtt",),
    "paho": ("edn.brokers.mqtt",),
    "nats": ("edn.brokers.nats",),
    "numba": ("edn.index", "edn.summary", "partitioning"),
    "pyspark": ("partitioning.planner", "partitioning.spark"),
}
#: Packages whose every use of a library of PLACES is their own affair.
FREE = ("evaluation", "load", "edn.tools", "edn.cli")

#: What code without I/O never imports, by the beginning of a module's name.
PURE = ("edn.model", "edn.index", "edn.summary", "edn.protocol", "edn.formats", "selftune.paper")
INPUT_OUTPUT = frozenset(
    {"asyncio", "http", "httpx", "psycopg", "socket", "sqlite3", "ssl", "subprocess", "uvicorn"}
)

#: A statement of SQL at the beginning of a string.
SQL = re.compile(
    r"\s*(SELECT\s.+\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+(TABLE|INDEX|TRIGGER)"
    r"|PRAGMA\s+\w|BEGIN(\s+IMMEDIATE)?$|SAVEPOINT\s|VACUUM\b)",
    re.IGNORECASE | re.DOTALL,
)

MOST_MODULES = 15
#: Lists of equals: commands, benchmarks, experiments.
LISTS = frozenset({"edn.cli", "edn.tools.bench", "evaluation"})


@functools.cache
def imports(source: str, module: str) -> frozenset[str]:
    """Return the full names that a module imports, inside functions too; relative ones made absolute."""
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
            # `library` of `edn.brokers.link` loads the library of an extra.
            if name in ("importlib.import_module", "import_module", "__import__", "library"):
                found.add(str(node.args[0].value))
    return frozenset(found)


def begins(module: str, *prefixes: str) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def tops(sources: Sources) -> Iterator[str]:
    """Packages import only packages below them; nobody but the Spark job needs Spark."""
    for module, source in sources.items():
        own = module.split(".")[0]
        for imported in imports(source, module):
            other = imported.split(".")[0]
            if other in {*TOPS, "tests"} and other != own and other not in TOPS[own]:
                yield f"{module} imports {imported}"
            if own != "partitioning" and begins(imported, *PLACES["pyspark"]):
                yield f"{module} imports {imported}, which needs Spark"


def layers(sources: Sources) -> Iterator[str]:
    """Inside a package, siblings import only siblings below them."""
    for module, source in sources.items():
        top, _, rest = module.partition(".")
        package = rest.split(".")[0] if f"{top}.{rest.split('.')[0]}" in _packages(sources) else ""
        if top not in LAYERS or not package:
            continue
        if package not in LAYERS[top]:
            yield f"{module}: package {top}.{package} has no place in the layers"
            continue
        allowed = LAYERS[top][package] | {package} | SHARED[top]
        for imported in imports(source, module):
            head, _, tail = imported.partition(".")
            if head == top and tail and tail.split(".")[0] not in allowed and _is_ours(imported, sources):
                yield f"{module} imports {imported}"


def _packages(sources: Sources) -> set[str]:
    return {module.rpartition(".")[0] for module in sources} | {
        ".".join(module.split(".")[:2]) for module in sources if module.count(".") > 1
    }


def _is_ours(imported: str, sources: Sources) -> bool:
    """Tell a module of ours from a name that a package's `__init__` offers."""
    return imported in sources or imported.rpartition(".")[0] in sources


def acyclic(sources: Sources) -> Iterator[str]:
    """The layers themselves have no cycle, so no two sibling packages depend on each other."""
    for top, allowed in LAYERS.items():
        known: set[str] = set()
        waiting = dict(allowed)
        while waiting:
            free = [package for package, below in waiting.items() if below <= known]
            if not free:
                yield f"{top}: {', '.join(sorted(waiting))} depend on each other"
                break
            for package in free:
                known.add(package)
                del waiting[package]
    yield from module_cycles(sources)


def module_cycles(sources: Sources) -> Iterator[str]:
    """No module imports itself through others, not even inside a function."""
    graph = {
        module: {
            found
            for imported in imports(source, module)
            for found in (imported, imported.rpartition(".")[0])
            if found in sources and found != module and not module.startswith(f"{found}.")
        }
        for module, source in sources.items()
    }
    state: dict[str, int] = {}

    def visit(module: str, path: list[str]) -> Iterator[str]:
        state[module] = 1
        for below in sorted(graph[module]):
            if state.get(below) == 1:
                yield " → ".join([*path[path.index(below) :], below] if below in path else [*path, below])
            elif below not in state:
                yield from visit(below, [*path, below])
        state[module] = 2

    for module in sorted(graph):
        if module not in state:
            yield from visit(module, [module])


def places(sources: Sources) -> Iterator[str]:
    """Libraries stand where they belong."""
    for module, source in sources.items():
        if begins(module, *FREE):
            continue
        for imported in imports(source, module):
            library = imported.split(".")[0]
            if library in PLACES and not begins(module, *PLACES[library]):
                yield f"{module} imports {imported}; only {', '.join(PLACES[library])} may"


def sql(sources: Sources) -> Iterator[str]:
    """SQL stands in the stores."""
    for module, source in sources.items():
        if begins(module, *FREE, *PLACES["sqlite3"], *PLACES["psycopg"], "edn.runtime.sql"):
            continue
        tree = ast.parse(source)
        documents = {
            node.body[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node in documents:
                continue
            if SQL.match(node.value):
                yield f"{module}:{node.lineno} holds SQL: {node.value[:40]!r}"


def pure(sources: Sources) -> Iterator[str]:
    """The model, the kernels, the formats and the messages do no I/O."""
    for module, source in sources.items():
        if begins(module, *PURE):
            for imported in imports(source, module):
                if imported.split(".")[0] in INPUT_OUTPUT:
                    yield f"{module} imports {imported}"


def hooks(sources: Sources) -> Iterator[str]:
    """The product reads no variable of the tests: `tests.faults` patches it from outside."""
    for module, source in sources.items():
        if "EDN_TEST_" in source:
            yield f"{module} has a hook for tests"


def sizes(sources: Sources) -> Iterator[str]:
    """A package has few modules."""
    counted: dict[str, int] = {}
    for module in sources:
        package = module.rpartition(".")[0]
        if package.split(".")[0] in LAYERS and module not in _packages(sources):
            counted[package] = counted.get(package, 0) + 1
    for package, count in counted.items():
        if count > MOST_MODULES and package not in LISTS:
            yield f"{package} has {count} modules, more than {MOST_MODULES}"


Rule = Callable[[Sources], Iterator[str]]
RULES: list[Rule] = [tops, layers, acyclic, places, sql, pure, hooks, sizes]


@functools.cache
def product() -> dict[str, str]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path.read_text()
        for top in TOPS
        for path in sorted((ROOT / top).rglob("*.py"))
    }


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_product_keeps_the_rules(rule: Rule) -> None:
    assert sorted(rule(product())) == []


@pytest.mark.parametrize(
    ("rule", "module", "source"),
    [
        (tops, "edn.model.event", "import dispatcher.app"),
        (tops, "edn_server.app", "def f():\n    from dispatcher import app"),
        (tops, "dispatcher.app", "from partitioning.spark import session"),
        (layers, "dispatcher.store.event_log", "from dispatcher.servers import registry"),
        (layers, "edn_server.outbox.rows", "from edn_server.delivery.notifier import Notifier"),
        (layers, "edn.model.schema", "from edn.runtime import clock"),
        (layers, "dispatcher.somewhere.else_", "x = 1"),
        (acyclic, "edn.index.matcher", "def f():\n    from edn.index.bitmap import BitmapMatcher"),
        (places, "dispatcher.servers.registry", "import sqlite3"),
        (places, "edn_server.delivery.notifier", "from fastapi import Request"),
        (places, "dispatcher.store.directory", "import psycopg"),
        (places, "edn.runtime.sql", "from psycopg import Connection"),
        (places, "edn_server.sinks.broker", "import aio_pika"),
        (places, "edn.brokers.amqp", 'x = library("aiomqtt", "mqtt")'),
        (places, "dispatcher.subscriptions.requests", "import pydantic"),
        (places, "dispatcher.routing.table", "import numba"),
        (places, "selftune.paper", "import pyspark.sql"),
        (sql, "dispatcher.subscriptions.replay", 'x = "SELECT a FROM replays WHERE b = ?"'),
        (sql, "edn_server.outbox.rows", 'db.execute("DELETE FROM outbox")'),
        (sql, "edn.runtime.clock", 'x = "UPDATE leases SET fence = fence + 1"'),
        (pure, "edn.model.filter.parse", "import socket"),
        (pure, "edn.protocol.stream", "from asyncio import Queue"),
        (hooks, "dispatcher.store.event_log", 'broken = os.environ.get("EDN_TEST_DEFECT")'),
        (sizes, "", ""),
    ],
)
def test_a_planted_violation_is_found(rule: Rule, module: str, source: str) -> None:
    sources = product()
    planted = (
        {f"dispatcher.servers.extra{number}": "" for number in range(MOST_MODULES + 1)}
        if rule is sizes
        else {module: source, f"{module.rpartition('.')[0]}.neighbour": ""}
    )
    before = set(rule(sources))
    assert set(rule({**sources, **planted})) - before, f"{rule.__name__} did not find {source!r}"


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


def test_the_oracle_shares_no_code_with_the_product() -> None:
    for path in sorted((ROOT / "tests" / "oracle").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        ours = {name for name in imports(path.read_text(), module) if name.split(".")[0] in TOPS}
        assert ours == set(), f"{module} imports {ours}"


#: A module's path in the documentation.
NAMED = re.compile(rf"`((?:{'|'.join(TOPS)})/[\w/]+\.py)`")


def test_every_module_that_the_map_names_exists() -> None:
    named = set(NAMED.findall((ROOT / "docs" / "internals.md").read_text()))
    assert len(named) > 10
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
