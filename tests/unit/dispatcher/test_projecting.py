"""The map's shadows: the largest distinct ones of what routes, found once for as long as it is the same."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dispatcher.observe import projection
from dispatcher.observe.projection import DRAWN, Projector
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.pipeline import PipelineCounters
from edn.model.schema import Schema

SCHEMA = Schema.parse({"a": "number", "b": "number", "c": "number"})
TOPIC: Any = SimpleNamespace(uid=7, name="numbers", schema=SCHEMA)


def network(*servers: str) -> Any:
    table = RoutingTable()
    for server in servers:
        table.add(server)
        table.accept(server, 1, 0, {})
    return SimpleNamespace(table=table, counters=PipelineCounters())


def widen(network: Any, server: str, lo: np.ndarray, hi: np.ndarray) -> None:
    network.table.widen(server, TOPIC.uid, lo, hi, epoch=1, seq=1)


def project(projector: Projector, x: str = "a", y: str = "c") -> dict[str, Any]:
    return asyncio.run(projector.project(TOPIC, x, y, None))


def boxes(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    # Whole numbers, so that many have the same shadow.
    lo = rng.integers(0, 12, (count, 3)).astype(float)
    return lo, lo + rng.integers(0, 12, (count, 3))


@pytest.mark.parametrize(("x", "y"), [(0, 2), (2, 1)])
@pytest.mark.parametrize("steps", [[3], [200, 700], [400, 5, 900]])
def test_the_largest_distinct_shadows_are_drawn_however_the_rectangles_came(
    x: int, y: int, steps: list[int]
) -> None:
    rng = np.random.default_rng(len(steps))
    running = network("s1")
    projector = Projector(running.table, running.counters)
    every: set[tuple[float, ...]] = set()
    for count in steps:
        lo, hi = boxes(rng, count)
        widen(running, "s1", lo, hi)
        every |= {(a[x], b[x], a[y], b[y]) for a, b in zip(lo.tolist(), hi.tolist(), strict=True)}
        [shown] = project(projector, "abc"[x], "abc"[y])["servers"]
        drawn = [tuple(shadow) for shadow in shown["shadows"]]
        assert len(drawn) == len(set(drawn)) == min(DRAWN, len(every))
        assert set(drawn) <= every

        def area(shadow: tuple[float, ...]) -> float:
            return (shadow[1] - shadow[0]) * (shadow[3] - shadow[2])

        left_out = max((area(one) for one in every - set(drawn)), default=0.0)
        assert min(map(area, drawn)) >= left_out
    assert shown["rectangles"] == sum(steps)


def test_shadows_are_found_once_until_a_servers_rectangles_change(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    running = network("s1", "s2")
    for server in ("s1", "s2"):
        widen(running, server, *boxes(rng, 300))
    looked_at: list[int] = []
    sides = projection._sides

    def counted(lo: np.ndarray, hi: np.ndarray, column: int) -> np.ndarray:
        looked_at.append(len(lo))
        return sides(lo, hi, column)

    monkeypatch.setattr(projection, "_sides", counted)
    projector = Projector(running.table, running.counters)
    first = project(projector)
    assert looked_at == [300] * 4  # two servers, two columns
    assert project(projector) == first
    assert looked_at == [300] * 4
    widen(running, "s2", *boxes(rng, 2))
    assert project(projector)["servers"][0] == first["servers"][0]
    assert project(projector)["servers"][1]["rectangles"] == 302
    assert looked_at == [300] * 4 + [2] * 2
    project(projector, "b", "c")
    assert looked_at[6:] == [300, 300, 300, 300, 2, 2]


def test_only_some_pairs_of_attributes_are_remembered() -> None:
    running = network("s1")
    widen(running, "s1", *boxes(np.random.default_rng(1), 3))
    projector = Projector(running.table, running.counters)
    for uid in range(100):
        topic: Any = SimpleNamespace(uid=uid, name="numbers", schema=SCHEMA)
        asyncio.run(projector.project(topic, "a", "b", None))
    assert len(projector._cache) == projection._CACHED
