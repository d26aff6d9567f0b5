"""Generated spaces, shared by all property tests."""

from __future__ import annotations

import pytest

from tests.property.spaces import Case, draw_all


@pytest.fixture(scope="package")
def cases() -> list[Case]:
    return draw_all()
