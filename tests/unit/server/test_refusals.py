"""Calls without the network's secret are refused and logged, and no flood of them fills the log."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from edn.errors import Unauthorized
from edn_server.api.refusals import MOST, Refusals

SECRET = "s" * 24


def call(authorization: str) -> dict[str, Any]:
    return {
        "method": "POST",
        "path": "/internal/stream",
        "client": ("10.0.0.9", 1),
        "headers": [(b"authorization", authorization.encode())],
    }


def test_a_flood_of_guesses_is_logged_in_few_lines() -> None:
    now = 0.0
    refusals = Refusals(SECRET, clock=lambda: now)
    with capture_logs() as lines:
        refusals.check(call(f"Bearer {SECRET}"))
        for number in range(10 * MOST):
            with pytest.raises(Unauthorized):
                refusals.check(call(f"Bearer guess-{number}"))
        now = 1.0
        with pytest.raises(Unauthorized):
            refusals.check(call(""))
    assert [line["event"] for line in lines] == [
        *["network_call_refused"] * MOST,
        "network_calls_refused",
        "network_call_refused",
    ]
    assert lines[MOST]["count"] == 9 * MOST
    assert lines[0]["client"] == "10.0.0.9"
    assert "guess" not in str(lines)
