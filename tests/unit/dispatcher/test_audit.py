"""The audit's file: what is written stays, whatever happens to the file."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from dispatcher.auth import audit
from dispatcher.auth.audit import Audit
from edn.errors import Forbidden


def refuse(door: Audit, path: str) -> None:
    door.record_refusal({"type": "http", "method": "GET", "path": path}, Forbidden("no"))


def lines(folder: Path) -> set[str]:
    """The paths of all that was written, in whichever file."""
    return {
        json.loads(line)["path"]
        for file in folder.glob("audit*.jsonl")
        for line in file.read_text().splitlines()
    }


def test_a_file_that_cannot_be_turned_over_is_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no room for another name")

    monkeypatch.setattr(audit, "MOST_BYTES", 1)
    seconds = itertools.count()  # files that are turned over are named after the second
    door = Audit(tmp_path, clock=lambda: float(next(seconds)))
    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", fail)
        refuse(door, "/one")
        refuse(door, "/two")
    assert [file.name for file in tmp_path.iterdir()] == ["audit.jsonl"]
    refuse(door, "/three")
    refuse(door, "/four")
    door.close()
    assert len(list(tmp_path.iterdir())) > 1
    assert lines(tmp_path) == {"/one", "/two", "/three", "/four"}
