"""The quick run on a database cluster: it holds as things are, and is violated when a defect is planted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.chaos.cluster import schedule
from tests.chaos.cluster.database import DatabaseCluster, Missing
from tests.faults.defects import CLUSTER_DEFECTS

ROOT = Path(__file__).resolve().parents[3]

#: defect → kinds of faults in which it shows, and minutes of them
SHOWN = {
    "ignore-the-fence": ("stop server,stop dispatcher,stop server in transaction", 1.0),
    "doubt-by-reading": ("cut replication,lose answers of dispatcher", 1.5),
    "commit-locally": ("hang replication and kill node", 1.0),
    "lease-by-own-clock": ("kill node,kill server,jump clock", 1.2),
    "widen-after-commit": ("kill server", 0.5),
}


def _chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos.cluster", "--quick", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        DatabaseCluster(tmp_path_factory.mktemp("cluster"))
    except Missing as error:
        programs.unavailable(str(error))


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_nothing_is_lost_invented_or_repeated_while_machines_die(tmp_path: Path) -> None:
    ran = _chaos("--seed", "1", "--results", str(tmp_path))
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("defect", sorted(CLUSTER_DEFECTS))
def test_a_planted_defect_is_noticed(defect: str, tmp_path: Path) -> None:
    kinds, minutes = SHOWN[defect]
    ran = _chaos(
        *("--seed", "1", "--kinds", kinds, "--minutes", str(minutes)),
        *("--defect", defect, "--results", str(tmp_path)),
    )
    assert ran.returncode == 1, ran.stdout[-8000:] + ran.stderr[-2000:]


def test_a_schedule_has_every_kind_and_replays() -> None:
    kinds = tuple(schedule.PACES)
    faults = schedule.draw(5, 1800, kinds)
    assert schedule.draw(5, 1800, kinds) == faults
    assert {fault.kind for fault in faults} == set(kinds)
    assert set(schedule.QUICK) <= set(kinds)
    assert sum(fault.seconds + fault.gap for fault in faults) >= 1800
