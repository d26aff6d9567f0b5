"""Planted defects do in a dispatcher what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from corekit import Core

from dispatcher.api.publish import PublishEndpoint
from dispatcher.auth.caller import EVERYBODY
from dispatcher.config import Settings
from dispatcher.routing.table import RoutingTable
from dispatcher.services import Services
from dispatcher.store.records import Record
from dispatcher.store.sqlite.log import SqliteLog
from edn import protocol
from edn.model.filter import Filter
from edn.summary import Summary
from tests.faults import defects

Plant = Callable[[Collection[str]], None]


@pytest.mark.parametrize("early", [False, True])
def test_records_are_routed_before_they_are_committed(
    tmp_path: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    if early:
        plant({"route-before-commit"})
    monkeypatch.setattr(defects, "WINDOW", 0.1)

    async def run() -> None:
        heads: list[int] = []

        def on_commit(records: list[Record]) -> None:
            heads.append(log.head)

        log = SqliteLog(tmp_path, on_commit=on_commit)
        log.start()
        await log.submit(lambda transaction: transaction.append_control("s1", "deactivate", ids=["a"]))
        assert heads == [0 if early else 1]
        await log.stop()

    asyncio.run(run())


@pytest.mark.parametrize("early", [False, True])
def test_publishers_are_answered_before_the_commit(
    tmp_path: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    if early:
        plant({"acknowledge-before-commit"})
    monkeypatch.setattr(defects, "WINDOW", 0.1)

    async def run() -> None:
        core = Core(tmp_path)
        core.log.start()
        await core.put("quotes")
        topic, head = core.topics.get("quotes"), core.log.head
        nobody: Any = None
        endpoint = PublishEndpoint(
            core.log, core.network.admission, core.topics, nobody, nobody, core.network.publication_guard
        )
        batch = topic.schema.decode_events(b'{"own": 1}')
        chosen = await endpoint._commit(topic, batch, ["chosen"], "", EVERYBODY, b"{}", None)
        assert chosen.ids == ["chosen"]
        assert core.log.head == (head if early else head + 1)
        made = await endpoint._commit(topic, batch, [None], "", EVERYBODY, b"{}", None)
        assert made.ids == [f"{core.log.id[:8]}-{head + 2}"]
        assert core.log.head == head + 2
        await core.network.stop()

    asyncio.run(run())


@pytest.mark.parametrize("defect", ["skip-the-widening", "move-before-widening"])
@pytest.mark.parametrize("arriving", [False, True])
def test_a_widening_is_left_out_of_new_or_of_moved_subscriptions(
    tmp_path: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch, defect: str, arriving: bool
) -> None:
    plant({defect})

    async def run() -> None:
        core = Core(tmp_path)
        core.log.start()
        widened: list[str] = []
        monkeypatch.setattr(core.network.summaries, "widen", lambda server, *_: widened.append(server))
        await core.put("quotes")
        topic = core.topics.get("quotes")
        bound = Filter.parse(None).bind(topic.schema)
        item: Any = SimpleNamespace(bound=bound, arriving=arriving, further=())
        core.installer._widen("s1", topic, [item], protocol.Stored(1, 1))
        assert widened == ([] if arriving is (defect == "move-before-widening") else ["s1"])
        await core.network.stop()

    asyncio.run(run())


@pytest.mark.parametrize("forgetful", [False, True])
def test_an_old_snapshot_replaces_a_newer_widening(plant: Plant, forgetful: bool) -> None:
    if forgetful:
        plant({"accept-an-old-snapshot"})
    table = RoutingTable()
    table.add("s1")
    point = np.array([[5.0]])
    table.accept("s1", 1, 1, {1: Summary.build(point + 1, point + 2)})
    table.widen("s1", 1, point - 1, point + 1, epoch=1, seq=3)
    assert table.accept("s1", 1, 2, {1: Summary.build(point + 1, point + 2)})
    assert table.accept("s1", 1, 1, {}) is forgetful
    assert bool(table.route(1, point)[0, 0]) is not forgetful


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_returning_server_goes_on_at_the_end_of_the_log(
    tmp_path: Path, plant: Plant, forgetful: bool
) -> None:
    async def run() -> None:
        network = Services(Settings(data=tmp_path, secret="s" * 16))
        network.log.start()
        for cursors in ({}, {network.log.id: 1}):
            request = protocol.Register(
                id="s1", key="k" * 16, epoch=1, url="http://127.0.0.1:1", cursors=cursors, subscriptions=0
            )
            await network.registration.register(request)
            for _ in range(3):
                await network.log.submit(
                    lambda transaction: transaction.append_control("s1", "deactivate", ids=["a"])
                )
            if forgetful:
                plant({"forget-the-join"})
        member = network.members.get("s1")
        assert member is not None
        assert member.forwarder is not None
        assert member.forwarder.acked == (4 if forgetful else 1)
        assert member.joined == (4 if forgetful else 5)
        await network.stop()

    asyncio.run(run())
