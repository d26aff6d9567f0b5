"""The calls of repartitions and of servers that come and go, described as in `edn.client.calls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from edn.client.conversation import Call, reading
from edn.client.encoding import encode

#: assignments of one request
MAX_ASSIGNMENTS = 5000


class Repartition(msgspec.Struct, frozen=True):
    id: int
    #: "apply", "drain", "replace" or "fill"
    kind: str
    #: "open", "running", "done" or "cancelled"
    state: str
    #: that is emptied, replaced or filled
    server: str | None = None
    began: str | None = None
    ended: str | None = None
    rate: float = 0.0
    total: int = 0
    moved: int = 0
    #: they have ended, or are there already
    skipped: int = 0
    left: int = 0
    #: of all repartitions: the former server has not delivered everything yet
    unsettled: int = 0
    #: why it does not go on at this moment
    waiting: str | None = None
    hit_ratio: float | None = None
    expected_hit_ratio: float | None = None

    @property
    def over(self) -> bool:
        return self.state in ("done", "cancelled")


class Preview(msgspec.Struct, frozen=True):
    """What a repartition would do."""

    moves: int
    stay: int
    #: assigned, but no subscriptions
    unknown: int
    #: subscriptions that no assignment names
    unassigned: int
    before: dict[str, int]
    after: dict[str, int]
    hit_ratio: float | None = None
    expected_hit_ratio: float | None = None


class Proposal(msgspec.Struct, frozen=True):
    since: str
    best: float
    then: float


class HitRatio(msgspec.Struct, frozen=True):
    now: float | None = None
    best: float | None = None
    threshold: float = 0.0


class Repartitions(msgspec.Struct, frozen=True):
    repartitions: list[Repartition]
    unsettled: int
    hit_ratio: HitRatio
    proposal: Proposal | None = None


def repartitions() -> Call[Repartitions]:
    """The last repartitions, the hit ratio, and whether another one is proposed."""
    return Call(method="GET", path="/v1/repartitions", read=reading(Repartitions))


def repartition(id: int) -> Call[Repartition]:
    """How far one is."""
    return Call(method="GET", path=f"/v1/repartitions/{id}", read=reading(Repartition))


def open_repartition(
    *, rate: float | None = None, expected_hit_ratio: float | None = None
) -> Call[Repartition]:
    """A new one, to which assignments are added before it starts."""
    body: dict[str, Any] = {} if rate is None else {"rate": rate}
    if expected_hit_ratio is not None:
        body["expected_hit_ratio"] = expected_hit_ratio
    return Call(method="POST", path="/v1/repartitions", body=encode(body), read=reading(Repartition))


def assign(id: int, assignments: Mapping[str, str]) -> Call[Repartition]:
    """Add where subscriptions shall go, at most `MAX_ASSIGNMENTS` at once."""
    body = encode({"assignments": dict(assignments)})
    return Call(
        method="POST", path=f"/v1/repartitions/{id}/assignments", body=body, read=reading(Repartition)
    )


def preview_repartition(id: int) -> Call[Preview]:
    """What it would do."""
    return Call(method="GET", path=f"/v1/repartitions/{id}/preview", read=reading(Preview))


def start_repartition(id: int) -> Call[Repartition]:
    return Call(method="POST", path=f"/v1/repartitions/{id}/start", read=reading(Repartition))


def cancel_repartition(id: int) -> Call[Repartition]:
    """No further moves; what has moved stays."""
    return Call(
        method="POST", path=f"/v1/repartitions/{id}/cancel", read=reading(Repartition), repeatable=False
    )


def drain_server(id: str, *, rate: float | None = None) -> Call[Repartition]:
    """Empty a server."""
    return _of_server(id, "drain", rate)


def replace_server(id: str, *, rate: float | None = None) -> Call[Repartition]:
    """Build what a lost server hosted anew on others."""
    return _of_server(id, "replace", rate)


def fill_server(id: str, *, rate: float | None = None) -> Call[Repartition]:
    """Give a new server its share."""
    return _of_server(id, "fill", rate)


def forget_server(id: str) -> Call[None]:
    """Take a server that hosts nothing and does not run out of the network."""
    return Call(method="DELETE", path=f"/v1/servers/{quote(id, safe='')}", read=lambda _: None)


def _of_server(id: str, what: str, rate: float | None) -> Call[Repartition]:
    body = encode({} if rate is None else {"rate": rate})
    path = f"/v1/servers/{quote(id, safe='')}/{what}"
    return Call(method="POST", path=path, body=body, read=reading(Repartition), repeatable=False)
