"""A sink for SOAP notifications, which the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.soap.sink import Sink


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    running = Sink()
    yield running
    running.close()
