"""The calls of repartitions and of servers that come and go, described as in `edn.client.calls`."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from edn.api.repartitions import HitRatio as HitRatio
from edn.api.repartitions import Preview as Preview
from edn.api.repartitions import Proposal as Proposal
from edn.api.repartitions import Repartition as Repartition
from edn.api.repartitions import Repartitions as Repartitions
from edn.client.conversation import Call, reading
from edn.client.encoding import encode, given

#: assignments of one request
MAX_ASSIGNMENTS = 5000


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
    body = given(rate=rate, expected_hit_ratio=expected_hit_ratio)
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
    body = encode(given(rate=rate))
    path = f"/v1/servers/{quote(id, safe='')}/{what}"
    return Call(method="POST", path=path, body=body, read=reading(Repartition), repeatable=False)
