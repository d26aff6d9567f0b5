"""Adds to a failed test's report what its processes wrote on their standard error."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.network import Network, Process


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
