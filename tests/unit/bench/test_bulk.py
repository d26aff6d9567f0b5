"""Whether what came out of a network is what went in: line by line, but for what a network adds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edn.tools.bench.bulk import _differing

SAID = {"id": "a", "topic": "t", "filter": {"n": {"gt": 1}}, "sink": {"url": "http://h/"}, "state": "active"}


@pytest.mark.parametrize(
    ("exported", "different"),
    [
        ([SAID], 0),
        ([{**SAID, "server": "s1", "created": "today", "sink": {"url": "http://h/", "secret": None}}], 0),
        ([dict(reversed(SAID.items()))], 0),
        ([{**SAID, "filter": {"n": {"gt": 2}}}], 2),
        ([{**SAID, "sink": {"url": "http://h/", "format": "json"}}], 2),
        ([{**SAID, "expires": "2030-01-01T00:00:00Z"}], 2),
        ([SAID, SAID], 1),
        ([], 1),
    ],
)
def test_lines_that_say_something_else_are_counted(
    exported: list[dict[str, Any]], different: int, tmp_path: Path
) -> None:
    source, other = tmp_path / "source.jsonl", tmp_path / "other.jsonl"
    source.write_text(json.dumps(SAID) + "\n")
    other.write_text("".join(json.dumps(line) + "\n" for line in exported))
    assert _differing(source, other) == different
