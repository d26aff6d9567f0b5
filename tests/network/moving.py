"""Steps of tests that move subscriptions: assign, start, await the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from tests.network.processes import until


def begin_moves(http: httpx.Client, assignments: Mapping[str, str], *, rate: float = 100_000.0) -> int:
    """Start a repartition of these; its id."""
    made = http.post("/v1/repartitions", json={"rate": rate})
    assert made.status_code == 201, made.text
    id: int = made.json()["id"]
    rows = list(assignments.items())
    for start in range(0, len(rows), 5000):
        body = {"assignments": dict(rows[start : start + 5000])}
        added = http.post(f"/v1/repartitions/{id}/assignments", json=body)
        assert added.status_code == 200, added.text
    started = http.post(f"/v1/repartitions/{id}/start")
    assert started.status_code == 200, started.text
    return id


def repartition(http: httpx.Client, id: int) -> dict[str, Any]:
    answer = http.get(f"/v1/repartitions/{id}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def await_moves(
    http: httpx.Client, id: int, *, settled: bool = True, seconds: float = 60.0
) -> dict[str, Any]:
    """Until it is done and, unless told otherwise, every former server has delivered its own."""

    def over() -> dict[str, Any] | None:
        try:
            found = repartition(http, id)
        except httpx.TransportError:
            return None  # the dispatcher is being restarted
        return found if found["state"] == "done" and not (settled and found["unsettled"]) else None

    return until(f"repartition {id} to be over", over, seconds=seconds)


def move(http: httpx.Client, assignments: Mapping[str, str], *, settled: bool = True) -> dict[str, Any]:
    return await_moves(http, begin_moves(http, assignments), settled=settled)
