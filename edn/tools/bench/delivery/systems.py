"""The systems that the benchmark can start."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from edn.errors import InvalidInput
from edn.tools.bench.database.replicated import check_programs, replicated
from edn.tools.bench.delivery.network import Network
from edn.tools.bench.delivery.peers.postgres import Postgres
from edn.tools.bench.delivery.peers.redis import Redis
from edn.tools.bench.delivery.peers.system import System, check_packages, find_program

PROGRAMS = {"pg": ("initdb", "postgres"), "redis": ("redis-server",)}
PEERS = tuple(PROGRAMS)
#: the product on PostgreSQL with a standby
ON_DATABASE = "edn-database"
NAMES = ("edn", ON_DATABASE, *PEERS, "floor")


def check_names(names: Sequence[str]) -> None:
    """Raises `InvalidInput` if a name is unknown."""
    for name in names:
        if name not in NAMES:
            raise InvalidInput(f"--systems must be some of {', '.join(NAMES)}, got {name}")


def check_installed(names: Sequence[str]) -> None:
    """Raises `InvalidInput` if a package or program of a peer is missing."""
    if any(name in PEERS for name in names):
        check_packages()
    if ON_DATABASE in names:
        check_programs()
    for name in names:
        for needed in PROGRAMS.get(name, ()):
            find_program(needed)


def new_system(name: str, *, servers: int, sink: str, stack: ExitStack) -> System:
    """Returns a system that is not started; its database, if it has one, ends with the stack."""
    if name == ON_DATABASE:
        return Network(servers, sink, name=name, replicated=stack.enter_context(replicated()))
    if name == "pg":
        return Postgres()
    if name == "redis":
        return Redis()
    return Network(servers, sink)
