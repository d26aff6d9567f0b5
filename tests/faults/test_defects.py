"""Defects and stepped clocks: none unless they are asked for, and never silently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import faults
from tests.faults import defects, wall_clock

ROOT = Path(__file__).resolve().parents[2]


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


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


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r'"forget-everything"; there are .*forget-the-join'):
        defects.parse("forget-the-join,forget-everything")


@pytest.mark.parametrize("service", faults.SERVICES)
def test_every_defect_finds_its_place_in_the_product_and_is_announced(service: str) -> None:
    ran = _run("-m", "tests.faults", service, "--help", EDN_TEST_DEFECT=",".join(defects.DEFECTS))
    assert ran.returncode == 0, ran.stderr
    assert "A DEFECT IS PLANTED" not in ran.stdout, "standard output begins with the ready line"
    announced = [line for line in ran.stderr.splitlines() if "A DEFECT IS PLANTED" in line]
    assert len(announced) == len(defects.DEFECTS)
    assert [name for name in defects.DEFECTS if name not in ran.stderr] == []


def test_a_service_without_the_launcher_knows_no_defects() -> None:
    ran = _run("-m", "dispatcher", "--help", EDN_TEST_DEFECT="forget-everything")
    assert ran.returncode == 0
    assert "DEFECT" not in ran.stderr + ran.stdout


def test_a_process_with_an_unknown_defect_does_not_start() -> None:
    ran = _run("-m", "tests.faults", "dispatcher", "--help", EDN_TEST_DEFECT="forget-everything")
    assert ran.returncode != 0
    assert "forget-everything" in ran.stderr


def test_the_launcher_refuses_an_unknown_service() -> None:
    ran = _run("-m", "tests.faults", "receiver")
    assert ran.returncode == 2
    assert 'service must be one of dispatcher, edn_server, got "receiver"' in ran.stderr


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"EDN_TEST_DEFECT": ""}, False),
        ({"EDN_TEST_DEFECT": "forget-the-join"}, True),
        ({"EDN_TEST_CHECKPOINTS": "/folder"}, True),
        ({"EDN_TEST_CLOCK_FILE": "/file"}, True),
    ],
)
def test_the_launcher_is_used_only_where_a_fault_is_wanted(environment: dict[str, str], wanted: bool) -> None:
    assert faults.are_wanted(environment) is wanted


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("2.5", 2.5), ("-3\n", -3.0), ("", 0.0), ("soon", 0.0), ("inf", 0.0), ("nan", 0.0)],
)
def test_a_test_steps_the_clock_by_the_number_in_the_file(
    tmp_path: Path, written: str, seconds: float
) -> None:
    file = tmp_path / "offset"
    file.write_text(written)
    assert wall_clock.offset(file) == seconds


def test_a_clock_without_its_file_goes_on(tmp_path: Path) -> None:
    assert wall_clock.offset(tmp_path / "missing") == 0.0


_STEPS = """
import os, time
from pathlib import Path
from edn.runtime import clock
from tests import faults
file = Path(os.environ["EDN_TEST_CLOCK_FILE"])
file.write_text("1000")
faults.plant(os.environ)
for step in ("1000", "-1000"):
    file.write_text(step)
    for read in (clock.wall, clock.now):
        print(round((read() - time.time()) / 1000))
"""


@pytest.mark.parametrize(
    ("defect", "read"), [("", ["1", "1", "-1", "1"]), ("trust-the-wall-clock", ["1", "1", "-1", "-1"])]
)
def test_a_stepped_clock_misleads_only_a_process_that_trusts_it(
    tmp_path: Path, defect: str, read: list[str]
) -> None:
    ran = _run("-c", _STEPS, EDN_TEST_CLOCK_FILE=str(tmp_path / "offset"), EDN_TEST_DEFECT=defect)
    assert ran.stdout.split() == read, ran.stderr
