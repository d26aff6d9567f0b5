"""Planted defects: none unless they are asked for, and never silently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edn import defects
from edn.runtime import clock

ROOT = Path(__file__).resolve().parents[2]


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", sorted(defects.DEFECTS))
def test_no_defect_is_planted_by_itself(name: defects.Defect) -> None:
    assert not defects.planted(name)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", set()),
        (" , ", set()),
        ("forget-the-join", {"forget-the-join"}),
        ("forget-the-join, skip-the-widening", {"forget-the-join", "skip-the-widening"}),
    ],
)
def test_the_variable_names_defects_with_commas(text: str, named: set[str]) -> None:
    assert defects.parse(text) == named


def test_a_name_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r'"forget-everything"; there are .*forget-the-join'):
        defects.parse("forget-the-join,forget-everything")


def test_a_process_with_a_defect_says_so() -> None:
    ran = _run(
        "from edn import defects; defects.announce(); print(defects.planted('forget-the-join'))",
        EDN_TEST_DEFECT="forget-the-join",
    )
    assert ran.returncode == 0, ran.stderr
    assert "A DEFECT IS PLANTED" in ran.stdout
    assert ran.stdout.endswith("True\n")


def test_a_process_with_an_unknown_defect_does_not_start() -> None:
    ran = _run("import edn.defects", EDN_TEST_DEFECT="forget-everything")
    assert ran.returncode != 0
    assert "forget-everything" in ran.stderr


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("2.5", 2.5), ("-3\n", -3.0), ("", 0.0), ("soon", 0.0), ("inf", 0.0), ("nan", 0.0)],
)
def test_a_test_steps_the_clock_by_what_the_file_holds(tmp_path: Path, written: str, seconds: float) -> None:
    file = tmp_path / "offset"
    file.write_text(written)
    assert clock.offset(file) == seconds


def test_a_clock_without_its_file_goes_on(tmp_path: Path) -> None:
    assert clock.offset(tmp_path / "missing") == 0.0


def test_the_file_is_read_at_every_look_at_the_wall_clock(tmp_path: Path) -> None:
    file = tmp_path / "offset"
    ran = _run(
        "import pathlib, time; from edn import clock; file = pathlib.Path(clock.os.environ[clock.VARIABLE])\n"
        "for step in ('1000', '-1000'):\n"
        "    file.write_text(step); print(round((clock.wall() - time.time()) / 1000))",
        EDN_TEST_CLOCK_FILE=str(file),
    )
    assert ran.stdout.split() == ["1", "-1"], ran.stderr
