"""Checkpoints: a process stops where a test has armed one, and nowhere else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dispatcher.rebalance.handover import Handover
from dispatcher.rebalance.mover import Mover
from tests.faults import checkpoints, patches
from tests.faults.checkpoints import Checkpoints


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def test_a_checkpoint_that_is_not_armed_stops_nobody(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(Checkpoints(tmp_path).reach("stored"), 5))
    assert names(tmp_path) == []


def test_an_armed_checkpoint_holds_one_caller_until_its_file_is_deleted(tmp_path: Path) -> None:
    async def run() -> None:
        reach = Checkpoints(tmp_path).reach
        (tmp_path / "stored").touch()
        waiting = asyncio.create_task(reach("stored"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert names(tmp_path) == ["stored.reached"]
        await asyncio.wait_for(reach("stored"), 5)
        (tmp_path / "stored.reached").unlink()
        await asyncio.wait_for(waiting, 5)

    asyncio.run(run())


def test_every_checkpoint_finds_its_place_in_the_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "put", monkeypatch.setattr)
    places = [
        (Mover, "_record"),
        *((Handover, name) for name in ("_ask", "_copy_kept", "_release", "_forget")),
    ]
    before = [getattr(owner, name) for owner, name in places]
    checkpoints.plant("")
    assert [getattr(owner, name) for owner, name in places] == before
    checkpoints.plant(str(tmp_path))
    after = [getattr(owner, name) for owner, name in places]
    assert all(old is not new for old, new in zip(before, after, strict=True))
