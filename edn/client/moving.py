"""Calls of repartitions, and of adding, draining and removing servers."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from edn.api.repartitions import HitRatio as HitRatio
from edn.api.repartitions import Preview as Preview
from edn.api.repartitions import Proposal as Proposal
from edn.api.repartitions import Repartition as Repartition
from edn.api.repartitions import Repartitions as Repartitions
from edn.client.conversation import Call, delete, request
from edn.client.encoding import drop_none

#: assignments per request
MAX_ASSIGNMENTS = 5000


def repartitions() -> Call[Repartitions]:
    """Returns the last repartitions, the hit ratio, and a proposal if there is one."""
    return request("GET", "/v1/repartitions", Repartitions)


def repartition(id: int) -> Call[Repartition]:
    """Returns the state of a repartition."""
    return request("GET", f"/v1/repartitions/{id}", Repartition)


def open_repartition(
    *, rate: float | None = None, expected_hit_ratio: float | None = None
) -> Call[Repartition]:
    """Creates a repartition; add assignments, then start it."""
    body = drop_none(rate=rate, expected_hit_ratio=expected_hit_ratio)
    return request("POST", "/v1/repartitions", Repartition, body)


def assign(id: int, assignments: Mapping[str, str]) -> Call[Repartition]:
    """Adds assignments (subscription id → server), at most `MAX_ASSIGNMENTS` per call."""
    return request(
        "POST", f"/v1/repartitions/{id}/assignments", Repartition, {"assignments": dict(assignments)}
    )


def preview_repartition(id: int) -> Call[Preview]:
    """Returns the effect that a repartition would have."""
    return request("GET", f"/v1/repartitions/{id}/preview", Preview)


def start_repartition(id: int) -> Call[Repartition]:
    return request("POST", f"/v1/repartitions/{id}/start", Repartition)


def cancel_repartition(id: int) -> Call[Repartition]:
    """Stops a repartition; migrated subscriptions stay where they are."""
    return request("POST", f"/v1/repartitions/{id}/cancel", Repartition, is_repeatable=False)


def drain_server(id: str, *, rate: float | None = None) -> Call[Repartition]:
    """Migrates all subscriptions of a server to others."""
    return _of_server(id, "drain", rate)


def replace_server(id: str, *, rate: float | None = None) -> Call[Repartition]:
    """Rebuilds the subscriptions of a lost server on others."""
    return _of_server(id, "replace", rate)


def fill_server(id: str, *, rate: float | None = None) -> Call[Repartition]:
    """Migrates a share of the subscriptions to a new server."""
    return _of_server(id, "fill", rate)


def forget_server(id: str) -> Call[None]:
    """Removes a stopped server without subscriptions from the network."""
    return delete(f"/v1/servers/{quote(id, safe='')}")


def _of_server(id: str, action: str, rate: float | None) -> Call[Repartition]:
    path = f"/v1/servers/{quote(id, safe='')}/{action}"
    return request("POST", path, Repartition, drop_none(rate=rate), is_repeatable=False)
