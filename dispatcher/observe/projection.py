"""Projects the routing table on two attributes: each server's rectangles, and recent events.

At the precision in force, or at any other: then the summaries are cut beside the table, in a thread, and
nothing changes but what is shown. A rectangle's shadow on two attributes says nothing of the others, so an
event inside a shadow need not be inside the rectangle; where events went is told by routing itself.

Shadows are found once for as long as the table holds the same rectangles, however many ask: a table's arrays
never change, a change brings others.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dispatcher.routing.rebuild import Recut
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.counters import PipelineCounters
from dispatcher.subscriptions.topics import Topic
from edn.arrays import Floats
from edn.errors import InvalidInput
from edn.model.display import value_at
from edn.model.rect import LOWEST

#: shadows of one server that are drawn, the largest first, and events
DRAWN = 300
EVENTS = 200


#: pairs of attributes whose shadows are kept
_KEPT = 16


@dataclass(slots=True)
class _Shadows:
    """Shadows on two columns, by the identity of the rectangles' lower bounds, which are kept with them."""

    columns: tuple[int, int]
    before: dict[int, tuple[Floats, Floats]]
    #: what was needed this time
    used: dict[int, tuple[Floats, Floats]] = field(default_factory=dict)

    def of(self, lo: Floats, hi: Floats) -> Floats:
        """(x low, x high, y low, y high) of the largest."""
        known = self.used.get(id(lo)) or self.before.get(id(lo))
        if known is None:
            known = lo, _largest(np.column_stack([_sides(lo, hi, column) for column in self.columns]))
        self.used[id(lo)] = known
        return known[1]


class Projector:
    def __init__(self, table: RoutingTable, counters: PipelineCounters) -> None:
        self._table = table
        self._counters = counters
        #: (topic, columns) → what was drawn last
        self._drawn: dict[tuple[int, int, int], dict[int, tuple[Floats, Floats]]] = {}

    async def project(self, topic: Topic, x: str, y: str, precision: float | None) -> dict[str, Any]:
        """The picture at a precision; None is that in force."""
        columns = _column(topic, x, "x"), _column(topic, y, "y")
        table = self._table
        recut = None if precision is None else table.plan(precision)
        if recut is not None:
            await asyncio.to_thread(recut.work)
        points = self._recent(topic)
        now = table.would_route(topic.uid, points)
        routed = now if recut is None else table.would_route(topic.uid, points, recut)
        known = _Shadows(columns, self._drawn.get((topic.uid, *columns), {}))
        shadows = {server: self._largest_of(server, topic, known, recut) for server in table.servers}
        if recut is None:  # what a trial asked for is soon of no use
            self._keep((topic.uid, *columns), known.used)
        chosen = points[:, list(columns)] if len(points) else np.empty((0, 2))
        present = np.isfinite(chosen).all(axis=1)
        few = np.flatnonzero(present)[:EVENTS]
        drawn = np.concatenate([np.empty((0, 4)), *(shadow for _, shadow in shadows.values())])
        axes = [
            _axis(topic, column, np.concatenate([_between(drawn, place), chosen[:, place]]))
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
                    "everything": one.everything if recut is None else _everything(one, recut),
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

    def _keep(self, key: tuple[int, int, int], drawn: dict[int, tuple[Floats, Floats]]) -> None:
        self._drawn.pop(key, None)
        self._drawn[key] = drawn
        if len(self._drawn) > _KEPT:
            del self._drawn[next(iter(self._drawn))]

    def _largest_of(
        self, server: str, topic: Topic, shadows: _Shadows, recut: Recut | None
    ) -> tuple[int, Floats]:
        """How many rectangles route to a server, and the shadows of the largest."""
        parts = [
            (lo, hi)
            for why, lo, hi in self._table.rectangles(server, topic.uid)
            if recut is None or why == "widening"
        ]
        if recut is not None:
            parts += [
                (piece.cover.lo, piece.cover.hi)
                for piece in recut.pieces
                if (piece.server, piece.topic) == (server, topic.uid) and piece.cover is not None
            ]
        # The largest of all are among the largest of each part.
        together = np.concatenate([np.empty((0, 4)), *(shadows.of(lo, hi) for lo, hi in parts)])
        return sum(len(lo) for lo, _ in parts), _largest(together)


def _column(topic: Topic, name: str, where: str) -> int:
    column = topic.schema.column_of(name)
    if column is None:
        known = ", ".join(topic.schema.attributes)
        raise InvalidInput(
            f'"{name[:80]}" is no attribute of {topic.name}; it has {known}', pointer=f"/{where}"
        )
    return column


def _sides(lo: Floats, hi: Floats, column: int) -> Floats:
    """The bounds of one column; an older rectangle lacks it, and is unconstrained there."""
    if column >= lo.shape[1]:
        return np.tile([-np.inf, np.inf], (len(lo), 1))
    low = np.where(lo[:, column] <= LOWEST, -np.inf, lo[:, column])
    return np.column_stack([low, hi[:, column]])


def _largest(shadows: Floats) -> Floats:
    """The distinct ones of the largest area, so many as are drawn."""
    distinct = np.unique(shadows, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        area = (distinct[:, 1] - distinct[:, 0]) * (distinct[:, 3] - distinct[:, 2])
    order = np.argsort(-np.nan_to_num(area, posinf=np.finfo(float).max), kind="stable")
    largest: Floats = distinct[order[:DRAWN]]
    return largest


def _between(shadows: Floats, place: int) -> Floats:
    """All bounds on one axis."""
    bounds: Floats = shadows[:, 2 * place : 2 * place + 2].ravel()
    return bounds


def _axis(topic: Topic, column: int, coordinates: Floats) -> dict[str, Any]:
    """Where the axis begins and ends; of strings the places that are named on it, in order."""
    attribute = topic.schema.columns[column]
    seen = np.unique(coordinates[np.isfinite(coordinates)]).tolist()
    stops = None
    if attribute.type == "string":
        stops = [{"at": at, "label": str(value_at("string", at, upper=True))} for at in seen]
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


def _everything(server: Any, recut: Recut) -> bool:
    return server.epoch is None or recut.precision == 0
