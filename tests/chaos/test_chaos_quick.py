"""The quick run: it holds as things are, and is violated when a defect is planted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.defects import CLUSTER_DEFECTS, DEFECTS

ROOT = Path(__file__).resolve().parents[2]


def _chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--quick", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.slow
def test_nothing_is_lost_invented_or_repeated_while_processes_die(tmp_path: Path) -> None:
    ran = _chaos("--seed", "1", "--results", str(tmp_path))
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("defect", sorted(DEFECTS.keys() - CLUSTER_DEFECTS))
def test_a_planted_defect_is_noticed(defect: str, tmp_path: Path) -> None:
    ran = _chaos("--seed", "1", "--minutes", "0.5", "--defect", defect, "--results", str(tmp_path))
    assert ran.returncode == 1, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert "violated" in ran.stdout
    assert list(tmp_path.glob("*.jsonl")), "the recording of a violation is kept"
