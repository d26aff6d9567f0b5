"""Measures the CPU load of the dispatcher; the only use of psutil.

A dispatcher is limited by the thread of its event loop, or by the interpreter's lock that its threads share.
So the share is the larger of two, since the last reading:

- CPU time of the process ÷ the cores it may use, which in a container is its quota.
- CPU time of the loop's thread plus the time that it waited for a core. A dispatcher that gets half a core
  on a crowded machine is full at that half. Linux reports the waiting time (`schedstat`); elsewhere it is 0.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Cpu:
    #: load, 0 … 1
    share: float
    #: share of one core that the loop gets while it wants to run
    core: float


class CpuMonitor:
    """Measures the thread that creates it, which must be the loop's."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        process_time: Callable[[], float] | None = None,
        thread_times: Callable[[], tuple[float, float]] | None = None,
        cores: float | None = None,
    ) -> None:
        self._clock = clock
        self._process_time = process_time or _own_process_time
        self._thread_times = thread_times or _thread_times(threading.get_native_id())
        #: cores that the process may use, at most 1, because one thread is the limit
        self.cores = min(1.0, container_cores() if cores is None else cores)
        self._last = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        return self._clock(), self._process_time(), *self._thread_times()

    def look(self) -> Cpu:
        """Return the mean load since the last call."""
        before, self._last = self._last, self._now()
        elapsed, process, ran, waited = (b - a for a, b in zip(before, self._last, strict=True))
        if elapsed <= 0:
            return Cpu(share=0.0, core=self.cores)
        share = min(1.0, max(process / self.cores, ran + waited) / elapsed)
        # A mostly idle thread does not show what share it would get.
        obtained = ran / (ran + waited) if ran > 0.05 * elapsed else 1.0
        return Cpu(share=share, core=min(self.cores, obtained))


def _own_process_time() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


def _thread_times(thread: int) -> Callable[[], tuple[float, float]]:
    """Return a function that returns the seconds that a thread ran and waited for a core."""
    schedstat = Path(f"/proc/self/task/{thread}/schedstat")

    def read() -> tuple[float, float]:
        try:
            ran, waited = schedstat.read_text().split()[:2]
        except (OSError, ValueError):
            return time.thread_time(), 0.0
        return int(ran) / 1e9, int(waited) / 1e9

    return read


def container_cores(root: Path = _CGROUP) -> float:
    """Return the cores that the control group allows; infinite without a limit."""
    for quota, period in (("cpu.max", None), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = (root / quota).read_text().split()
            if period is not None:
                words += (root / period).read_text().split()
            if words[0] in ("max", "-1"):
                return float("inf")
            return int(words[0]) / int(words[1])
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            continue
    return float("inf")
