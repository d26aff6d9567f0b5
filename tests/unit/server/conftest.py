"""A server's parts, opened from a folder of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serverkit import Kit

from edn.runtime import ownership

ownership.enforce()


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    opened = Kit(tmp_path / "data")
    yield opened
    opened.close()
    assert opened.fatal == []
