"""What is bound to names: the nearest counts, for matchers and for servers, and placing keeps to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from corekit import Core, core

from dispatcher.observe.routes import RoutingEntries
from edn.errors import InvalidInput, NotFound, Unavailable

Work = Callable[[Core], Coroutine[Any, Any, None]]
N = {"n": "number"}
XPATH = "http://www.w3.org/TR/1999/REC-xpath-19991116"


def run(folder: Path, work: Work, *servers: str) -> None:
    async def inside() -> None:
        async with core(folder, *(servers or ("s1", "s2", "s3"))) as made:
            await work(made)

    asyncio.run(inside())


async def bind(made: Core, name: str, servers: list[str] | None = None, engine: str | None = None) -> None:
    await made.network.bindings.put(name, servers, engine, [member.id for member in made.network.members])


# bindings, topics with engines → a new topic and the engine that it gets
INHERITED: list[tuple[dict[str, str], dict[str, str], str, str]] = [
    ({}, {}, "stocks", "bitmap"),
    ({}, {"stocks": "rtree"}, "stocks.nyse.quotes", "rtree"),
    ({}, {"stocks": "rtree", "stocks.nyse": "scan"}, "stocks.nyse.quotes", "scan"),
    ({}, {"stocks": "rtree"}, "stocksandbonds", "bitmap"),
    ({"stocks.**": "scan"}, {}, "stocks", "scan"),
    ({"stocks.**": "scan"}, {}, "stocks.nyse", "scan"),
    ({"stocks.**": "scan"}, {}, "bonds", "bitmap"),
    ({"**": "rtree", "stocks.**": "scan"}, {}, "stocks.nyse", "scan"),
    ({"**": "rtree", "stocks.**": "scan"}, {}, "bonds", "rtree"),
    ({"stocks": "scan"}, {}, "stocks", "scan"),
    ({"stocks": "scan"}, {}, "stocks.nyse", "scan"),
    ({"stocks": "scan", "stocks.**": "rtree"}, {}, "stocks", "scan"),
    ({"stocks": "scan", "stocks.**": "rtree"}, {}, "stocks.nyse", "rtree"),
    ({"stocks.**": "scan"}, {"stocks": "rtree"}, "stocks.nyse", "scan"),
    ({"**": "scan"}, {"stocks": "rtree"}, "stocks.nyse", "rtree"),
    ({"stocks.**": XPATH}, {}, "stocks.nyse", "xpath"),
    ({"stocks.**": "urn:edn:matcher:scan"}, {}, "stocks.nyse", "scan"),
]


@pytest.mark.parametrize(("bound", "topics", "name", "engine"), INHERITED)
def test_a_topic_without_a_matcher_has_the_one_of_the_nearest_name_above(
    tmp_path: Path, bound: dict[str, str], topics: dict[str, str], name: str, engine: str
) -> None:
    async def work(made: Core) -> None:
        for other, matcher in topics.items():
            await made.subtree_sync.put(other, N, matcher)
        for other, matcher in bound.items():
            await bind(made, other, engine=matcher)
        topic, _ = await made.subtree_sync.put(name, N, None)
        assert topic.engine == engine
        explicit, _ = await made.subtree_sync.put(f"{name}.own", N, "bitmap")
        assert explicit.engine == "bitmap"

    run(tmp_path, work)


def test_what_was_inherited_binds_nobody(tmp_path: Path) -> None:
    """A topic that got the default has chosen nothing: what is bound above it later counts below it, too."""

    async def work(made: Core) -> None:
        await made.subtree_sync.put("stocks", N, None)
        await bind(made, "**", engine="rtree")
        below, _ = await made.subtree_sync.put("stocks.nyse", N, None)
        assert below.engine == "rtree"
        assert made.topics.get("stocks").engine == "bitmap"  # it is what it was
        await made.subtree_sync.put("stocks", N, "bitmap")  # and now it is chosen
        beside, _ = await made.subtree_sync.put("stocks.tokyo", N, None)
        assert beside.engine == "bitmap"

    run(tmp_path, work)


def test_tenants_inherit_from_their_own_names_only(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await bind(made, "**", engine="rtree")
        await bind(made, "hers/**", engine="scan")
        for tenant, engine in (("", "rtree"), ("hers", "scan"), ("his", "bitmap")):
            topic, _ = await made.subtree_sync.put("stocks", N, None, tenant=tenant)
            assert topic.engine == engine

    run(tmp_path, work)


# bindings → where subscriptions to stocks.nyse may be
ALLOWED: list[tuple[dict[str, list[str]], set[str]]] = [
    ({"**": ["s1"]}, {"s1"}),
    ({"**": ["s1"], "stocks.**": ["s2"]}, {"s2"}),
    ({"stocks.**": ["s2"], "stocks.nyse": ["s3"]}, {"s3"}),
    ({"stocks.nyse.**": ["s3"], "stocks.**": ["s2"]}, {"s3"}),
    ({"stocks": ["s1"], "stocks.**": ["s2", "s3"]}, {"s2", "s3"}),
    ({"stocks": ["s1"]}, {"s1", "s2", "s3"}),
    ({"bonds.**": ["s1"], "hers/**": ["s1"]}, {"s1", "s2", "s3"}),
]


@pytest.mark.parametrize(("bound", "hosts"), ALLOWED)
def test_subscriptions_go_where_the_nearest_binding_allows(
    tmp_path: Path, bound: dict[str, list[str]], hosts: set[str]
) -> None:
    async def work(made: Core) -> None:
        await made.put("stocks.nyse", "price")
        for name, servers in bound.items():
            await bind(made, name, servers)
        found = [await made.subscribe(f"p{n}", "stocks.nyse", f"price > {n}") for n in range(24)]
        assert {one.server for one in found} == hosts
        await made.subscribe("w", "**")
        assert made.members("w")["stocks.nyse"].server in hosts

    run(tmp_path, work)


def test_where_none_of_the_allowed_servers_is_there_nothing_is_taken(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.put("stocks", "price")
        await bind(made, "stocks", ["s2"])
        made.network.members.set_leaving("s2", "draining")
        with pytest.raises(Unavailable, match='route "stocks" binds these subscriptions to s2'):
            await made.subscribe("x", "stocks")
        await made.network.bindings.delete("stocks")
        assert (await made.subscribe("x", "stocks")).server in ("s1", "s3")

    run(tmp_path, work)


WRONG: list[tuple[str, list[str] | None, str | None, str]] = [
    ("stocks.**", None, None, "must have servers, an engine, or both"),
    ("stocks.**", [], None, "servers must not be empty"),
    ("stocks.**", ["s1", "s9"], None, r'server "s9" does not exist; servers are s1, s2, s3'),
    ("stocks.**", None, "fastest", "the engine must be one of"),
    ("sto cks", ["s1"], None, "the name of a topic must be parts of"),
    ("stocks**", ["s1"], None, "subtree"),
    ("/stocks", ["s1"], None, "tenant"),
]


@pytest.mark.parametrize(("name", "servers", "engine", "why"), WRONG)
def test_a_wrong_binding_is_refused_with_what_would_be_right(
    tmp_path: Path, name: str, servers: list[str] | None, engine: str | None, why: str
) -> None:
    async def work(made: Core) -> None:
        with pytest.raises(InvalidInput, match=why):
            await bind(made, name, servers, engine)
        assert made.network.bindings.all() == []

    run(tmp_path, work)


def test_bindings_outlive_a_restart(tmp_path: Path) -> None:
    async def inside() -> None:
        async with core(tmp_path) as first:
            await bind(first, "stocks.**", ["s1"], "rtree")
            await bind(first, "gone", ["s1"])
            await first.network.bindings.delete("gone")
            [only] = first.network.bindings.all()
            assert (only.name, only.servers, only.engine) == ("stocks.**", ("s1",), "rtree")
        async with core(tmp_path) as again:
            assert again.network.bindings.all() == [only]
            with pytest.raises(NotFound):
                await again.network.bindings.delete("gone")

    asyncio.run(inside())


def test_routes_are_a_topic_and_a_server_each(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.put("stocks", "price")
        await made.put("stocks.nyse", "price")
        await made.put("silent", "price")
        await bind(made, "stocks.**", ["s1"])
        await made.subscribe("x", "stocks", "price > 1")
        await made.subscribe("w", "stocks.**")
        await bind(made, "stocks.nyse", ["s2"])

        parts = made.network
        entries = RoutingEntries(parts.log, parts.table, parts.members, parts.bindings, made.topics)

        async def shown(name: str | None = None) -> list[tuple[str, str, int, int]]:
            found = await entries.found(name)
            return [(one.name, one.server, one.subscriptions, one.rectangles) for one in found]

        assert await shown() == [("stocks", "s1", 2, 2), ("stocks.nyse", "s1", 1, 1)]
        assert await shown("stocks.nyse.**") == [("stocks.nyse", "s1", 1, 1)]
        assert await shown("bonds.**") == []
        misplaced = {one.name: await entries.misplaced(one) for one in made.network.bindings.all()}
        assert misplaced == {"stocks.**": 0, "stocks.nyse": 1}

    run(tmp_path, work)
