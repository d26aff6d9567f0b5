"""What the fleet makes of the lines that a process prints when it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.fleet import ready_line

WAITS = '{"ready": false, "waiting": "disk: 0 bytes free, 2097152 needed"}\n'
READY = '{"ready": true, "url": "http://127.0.0.1:1"}\n'


@pytest.mark.parametrize(
    ("said", "ready"),
    [
        ("", False),
        (READY, True),
        (READY[:-1], False),
        (WAITS, False),
        (WAITS + READY[:9], False),
        (WAITS + READY, True),
    ],
)
def test_a_process_is_ready_when_a_whole_line_says_so(tmp_path: Path, said: str, ready: bool) -> None:
    file = tmp_path / "ready"
    file.write_text(said)
    assert (ready_line(file) is not None) == ready


def test_a_process_that_has_said_nothing_is_not_ready(tmp_path: Path) -> None:
    assert ready_line(tmp_path / "ready") is None
