"""The quick run on a database cluster: it holds as things are, and is violated when a defect is planted."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import programs
from tests.chaos.cluster import schedule, watchdog
from tests.chaos.cluster.database import DatabaseCluster, Missing
from tests.faults.defects import CLUSTER_DEFECTS
from tests.network import until

ROOT = Path(__file__).resolve().parents[3]

_TWO_IDS, _LOST, _LEASE = "pairs under two webhook-ids", "lost", "lost its lease without a reason"
#: defect → kinds of faults in which it shows, seed, minutes, and the figures of which one must show it.
#: Dispatchers are stopped for longer than a takeover, replication is cut for longer than the deadline of
#: a commit, and the clock of the spare is ahead. The fence keeps a lease that was taken too early from doing
#: harm: only a living owner that lost it shows that.
SHOWN = {
    "ignore-the-fence": ("stop dispatcher,stop dispatcher in transaction", 1354, 1.25, (_TWO_IDS, _LOST)),
    "doubt-by-reading": ("cut replication,kill server", 738, 1.25, (_TWO_IDS, _LOST)),
    "commit-locally": ("hang replication and kill node", 1, 1.0, (_LOST,)),
    "lease-by-own-clock": ("jump clock", 4, 0.66, (_LEASE,)),
    "widen-after-commit": ("kill server", 1, 0.5, (_LOST,)),
}


def _figure(printed: str, name: str) -> int:
    """Return the sum of the rows of the report whose name begins so."""
    rows = re.findall(rf"^  {re.escape(name)}(?:, .*?)?  +(\d+)$", printed, re.MULTILINE)
    return sum(map(int, rows))


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
    kinds, seed, minutes, figures = SHOWN[defect]
    ran = _chaos(
        *("--seed", str(seed), "--kinds", kinds, "--minutes", str(minutes)),
        *("--defect", defect, "--results", str(tmp_path)),
    )
    assert ran.returncode == 1, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert any(_figure(ran.stdout, figure) for figure in figures), ran.stdout[-8000:]


def test_a_schedule_has_every_kind_and_replays() -> None:
    kinds = tuple(schedule.PACES)
    faults = schedule.draw(5, 1800, kinds)
    assert schedule.draw(5, 1800, kinds) == faults
    assert {fault.kind for fault in faults} == set(kinds)
    assert set(schedule.QUICK) <= set(kinds)
    assert sum(fault.seconds + fault.gap for fault in faults) >= 1800


def test_the_watchdog_ends_what_works_in_the_folder_of_a_killed_run() -> None:
    """As PostgreSQL's server does, the process is in a session of its own."""
    folder = Path(tempfile.mkdtemp(prefix=watchdog.FOLDERS))
    (folder / "data").mkdir()
    stray = subprocess.Popen(["sleep", "600"], cwd=folder / "data", start_new_session=True)
    other = subprocess.Popen(["sleep", "600"], cwd=folder.parent)
    program = (
        "import os, pathlib, sys; from tests.chaos.cluster.watchdog import watching\n"
        "with watching(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    try:
        run = subprocess.run([sys.executable, "-c", program, str(folder)], cwd=ROOT, check=False)
        assert run.returncode == -signal.SIGKILL
        assert stray.wait(30) == -signal.SIGKILL
        until("the folder to be deleted", lambda: not folder.exists())
        assert other.poll() is None
    finally:
        for process in (stray, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    "folder", ["", "/", ".", "/tmp", "/tmp/edn-cluster-", "/home/edn-cluster-x", "relative"]
)
def test_the_watchdog_refuses_any_other_folder(folder: str) -> None:
    with pytest.raises(ValueError, match="folder"):
        watchdog.clear(Path(folder))
