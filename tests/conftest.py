"""Networks that the tests of a module share, and what their processes wrote when a test fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator

import pytest

from tests.faults import defects, patches
from tests.network import Engine, Hook, Network, Process, Receiver
from tests.postgres import Cluster, cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL server without a replica; tests use schemas of their own."""
    with cluster() as running:
        yield running


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with Receiver(tmp_path_factory.mktemp("receiver")) as running:
        yield running


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Engine:
    """Where networks keep their state: in data folders, unless a test is parametrised with "postgresql", or
    its module has several `DISPATCHERS`."""
    several = getattr(request.module, "DISPATCHERS", 1) > 1
    if getattr(request, "param", "postgresql" if several else "sqlite") == "sqlite":
        return Engine("sqlite")
    return Engine("postgresql", request.getfixturevalue("postgres"))


@pytest.fixture(scope="module")
def network(
    request: pytest.FixtureRequest, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Network]:
    """As many servers as the module's `SERVERS` says, and `DISPATCHERS`, `LOCKED`, `DISPATCHER_OPTIONS` and
    `SERVER_OPTIONS`; starting costs seconds."""
    running = engine.network(
        tmp_path_factory.mktemp("network"),
        request.module.SERVERS,
        dispatchers=getattr(request.module, "DISPATCHERS", 1),
        dispatcher_options=getattr(request.module, "DISPATCHER_OPTIONS", ()),
        server_options=getattr(request.module, "SERVER_OPTIONS", ()),
        locked=getattr(request.module, "LOCKED", False),
    )
    try:
        running.start()
        yield running
    except AssertionError:
        print(running.report())
        raise
    finally:
        running.close()


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    running = Hook()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Collection[str]], None]:
    """Plants defects in this process until the end of the test."""
    monkeypatch.setattr(patches, "put", monkeypatch.setattr)
    return defects.plant


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Network):
                report.sections.append((f"processes of {name}", value.report()))
            elif isinstance(value, Process):
                report.sections.append((f"process {name}", value.tail()))
    return report
