"""Projects the servers' rectangles and recent events on two attributes, for the dashboard's map.

At another precision than the present one, summaries are cut in a thread, and the table does not change. A
*shadow* is the projection of a rectangle. It ignores the other attributes, so an event inside a shadow may be
outside the rectangle; the routing table decides where events go.

Shadows are cached as long as the table has the same rectangles: its arrays are immutable.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dispatcher.routing.table import RoutingTable
from dispatcher.routing.topic_routes import TableRebuild
from dispatcher.servers.pipeline import PipelineCounters
from dispatcher.subscriptions.topics import Topic
from edn.arrays import Floats
from edn.errors import InvalidInput
from edn.model.display import value_at
from edn.model.rect import LOWEST
from edn.runtime.ownership import owned

#: limits of shadows per server, the largest first, and of events
DRAWN = 300
EVENTS = 200
#: limit of cached pairs of attributes
_CACHED = 16


@dataclass(slots=True)
class _Shadows:
    """Cached shadows on two columns, by the identity of the rectangles' lower bounds."""

    columns: tuple[int, int]
    before: dict[int, tuple[Floats, Floats]]
    #: shadows of the present request
    used: dict[int, tuple[Floats, Floats]] = field(default_factory=dict)

    def of(self, lo: Floats, hi: Floats) -> Floats:
        """Return (x low, x high, y low, y high) of the largest shadows."""
        known = self.used.get(id(lo)) or self.before.get(id(lo))
        if known is None:
            known = lo, _largest(np.column_stack([_sides(lo, hi, column) for column in self.columns]))
        self.used[id(lo)] = known
        return known[1]


@owned("loop")
class Projector:
    def __init__(self, table: RoutingTable, counters: PipelineCounters) -> None:
        self._table = table
        self._counters = counters
        #: (topic, columns) → shadows of the last request
        self._cache: dict[tuple[int, int, int], dict[int, tuple[Floats, Floats]]] = {}

    async def project(self, topic: Topic, x: str, y: str, precision: float | None) -> dict[str, Any]:
        """Return the map at a precision; None is the present one."""
        columns = _column(topic, x, "x"), _column(topic, y, "y")
        table = self._table
        rebuild = None if precision is None else table.plan(precision)
        if rebuild is not None:
            await asyncio.to_thread(rebuild.run)
        points = self._recent(topic)
        now = table.would_route(topic.uid, points)
        routed = now if rebuild is None else table.would_route(topic.uid, points, rebuild)
        known = _Shadows(columns, self._cache.get((topic.uid, *columns), {}))
        shadows = {server: self._largest_of(server, topic, known, rebuild) for server in table.servers}
        if rebuild is None:  # nobody asks for a trial twice
            self._put((topic.uid, *columns), known.used)
        chosen = points[:, list(columns)] if len(points) else np.empty((0, 2))
        present = np.isfinite(chosen).all(axis=1)
        few = np.flatnonzero(present)[:EVENTS]
        drawn = np.concatenate([np.empty((0, 4)), *(shadow for _, shadow in shadows.values())])
        axes = [
            _axis(
                topic, column, np.concatenate([drawn[:, 2 * place : 2 * place + 2].ravel(), chosen[:, place]])
            )
            for place, column in enumerate(columns)
        ]
        in_force = [table.describe(server) for server in table.servers]
        return {
            "topic": topic.name,
            "x": axes[0],
            "y": axes[1],
            "precision": precision if precision is not None else _common(in_force),
            "in_force": _common(in_force),
            "servers": [
                {
                    "server": server,
                    "everything": one.everything
                    if rebuild is None
                    else one.epoch is None or rebuild.precision == 0,
                    "rectangles": count,
                    "maximal": one.topics[topic.uid].maximal if topic.uid in one.topics else 0,
                    "shadows": [[_bound(value) for value in shadow] for shadow in own.tolist()],
                }
                for one, (server, (count, own)) in zip(in_force, shadows.items(), strict=True)
            ],
            "events": [
                {
                    "x": float(chosen[row, 0]),
                    "y": float(chosen[row, 1]),
                    "to": [server for server, goes in zip(table.servers, routed[row], strict=True) if goes],
                }
                for row in few.tolist()
            ],
            "sampled": len(points),
            "copies": float(routed.sum() / len(points)) if len(points) else None,
            "copies_in_force": float(now.sum() / len(points)) if len(points) else None,
        }

    def _recent(self, topic: Topic) -> Floats:
        sample = self._counters.samples.get(topic.uid)
        return np.empty((0, topic.schema.width)) if sample is None else sample.points()

    def _put(self, key: tuple[int, int, int], shadows: dict[int, tuple[Floats, Floats]]) -> None:
        self._cache.pop(key, None)
        self._cache[key] = shadows
        if len(self._cache) > _CACHED:
            del self._cache[next(iter(self._cache))]

    def _largest_of(
        self, server: str, topic: Topic, shadows: _Shadows, rebuild: TableRebuild | None
    ) -> tuple[int, Floats]:
        """Return the number of a server's rectangles, and the largest shadows."""
        parts = [
            (lo, hi)
            for why, lo, hi in self._table.rectangles(server, topic.uid)
            if rebuild is None or why == "widening"
        ]
        if rebuild is not None:
            _, cover = rebuild.covers().get((server, topic.uid), (None, None))
            parts += [] if cover is None else [(cover.lo, cover.hi)]
        # The largest shadows of all are among the largest of each part.
        together = np.concatenate([np.empty((0, 4)), *(shadows.of(lo, hi) for lo, hi in parts)])
        return sum(len(lo) for lo, _ in parts), _largest(together)


def _column(topic: Topic, name: str, where: str) -> int:
    column = topic.schema.column_of(name)
    if column is None:
        known = ", ".join(topic.schema.types)
        raise InvalidInput(
            f'{where} must be an attribute of topic "{topic.name}" ({known}), got "{name[:80]}"',
            pointer=f"/{where}",
        )
    return column


def _sides(lo: Floats, hi: Floats, column: int) -> Floats:
    """Return the bounds of one column; an older rectangle without it is unconstrained."""
    if column >= lo.shape[1]:
        return np.tile([-np.inf, np.inf], (len(lo), 1))
    low = np.where(lo[:, column] <= LOWEST, -np.inf, lo[:, column])
    return np.column_stack([low, hi[:, column]])


def _largest(shadows: Floats) -> Floats:
    """Return the distinct shadows with the largest areas."""
    distinct = np.unique(shadows, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        area = (distinct[:, 1] - distinct[:, 0]) * (distinct[:, 3] - distinct[:, 2])
    order = np.argsort(-np.nan_to_num(area, posinf=np.finfo(float).max), kind="stable")
    largest: Floats = distinct[order[:DRAWN]]
    return largest


def _axis(topic: Topic, column: int, coordinates: Floats) -> dict[str, Any]:
    """Describe an axis: its range, and for strings and booleans the labelled places."""
    attribute = topic.schema.columns[column]
    seen = np.unique(coordinates[np.isfinite(coordinates)]).tolist()
    stops = None
    if attribute.type in ("string", "bytes"):
        stops = [{"at": at, "label": str(value_at(attribute.type, at, upper=True))} for at in seen]
    elif attribute.type == "boolean":
        stops = [{"at": 0.0, "label": "false"}, {"at": 1.0, "label": "true"}]
    return {
        "attribute": attribute.name,
        "type": attribute.type,
        "range": [seen[0], seen[-1]] if seen else None,
        "stops": stops,
    }


def _bound(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _common(servers: list[Any]) -> float | None:
    return servers[0].precision if servers else None
