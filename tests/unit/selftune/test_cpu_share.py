"""How full the CPU is: of the busiest thread, of the process, under a quota, on a crowded machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from selftune.cpu import CpuMonitor, container_cores


class Machine:
    """Clocks that a test turns."""

    def __init__(self) -> None:
        self.now = self.process = self.ran = self.waited = 0.0

    def monitor(self, cores: float) -> CpuMonitor:
        return CpuMonitor(
            clock=lambda: self.now,
            process_time=lambda: self.process,
            thread_times=lambda: (self.ran, self.waited),
            cores=cores,
        )


INF = float("inf")


@pytest.mark.parametrize(
    ("case", "cores", "process", "ran", "waited", "share", "core"),
    [
        # over ten seconds
        ("half full", INF, 5.0, 5.0, 0.0, 0.5, 1.0),
        ("the loop is full", INF, 10.0, 10.0, 0.0, 1.0, 1.0),
        ("threads together beyond one core", INF, 14.0, 7.0, 0.0, 1.0, 1.0),
        ("it wants all and gets half", INF, 5.0, 5.0, 5.0, 1.0, 0.5),
        ("it wants half and gets it late", INF, 4.0, 4.0, 1.0, 0.5, 0.8),
        ("a quota of half a core, used up", 0.5, 5.0, 5.0, 0.0, 1.0, 0.5),
        ("a quota of half a core, half used", 0.5, 2.5, 2.5, 0.0, 0.5, 0.5),
        ("a quota of four cores is one core", 4.0, 9.0, 9.0, 0.0, 0.9, 1.0),
        ("idle: what it would get is not known", INF, 0.1, 0.1, 0.3, 0.04, 1.0),
    ],
)
def test_the_share_is_of_what_the_loop_can_get(
    case: str, cores: float, process: float, ran: float, waited: float, share: float, core: float
) -> None:
    machine = Machine()
    monitor = machine.monitor(cores)
    machine.now, machine.process, machine.ran, machine.waited = 10.0, process, ran, waited
    found = monitor.look()
    assert found.share == pytest.approx(share), case
    assert found.core == pytest.approx(core), case


def test_a_look_is_the_mean_since_the_last_one() -> None:
    machine = Machine()
    monitor = machine.monitor(INF)
    machine.now, machine.process, machine.ran = 10.0, 9.0, 9.0
    assert monitor.look().share == pytest.approx(0.9)
    machine.now, machine.process, machine.ran = 20.0, 10.0, 10.0
    assert monitor.look().share == pytest.approx(0.1)
    assert monitor.look().share == 0.0


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, INF),
        ({"cpu.max": "max 100000\n"}, INF),
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"cpu.max": "rubbish"}, INF),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, INF),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "150000\n"}, INF),
    ],
)
def test_a_containers_quota_is_read_from_either_version_of_control_groups(
    tmp_path: Path, files: dict[str, str], expected: float
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert container_cores(tmp_path) == expected


def test_the_real_clocks_count_work() -> None:
    monitor = CpuMonitor()
    sum(number * number for number in range(200_000))
    found = monitor.look()
    assert 0.0 < found.share <= 1.0
    assert 0.0 < found.core <= 1.0
