"""Measures CPU time, memory and descriptors of the processes under test, and the CPU that others use."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

Roles = Mapping[str, Sequence[psutil.Process]]


def raise_descriptor_limit() -> int:
    """Raises the soft limit of descriptors to the hard one, for child processes too; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def memory_mb(roles: Roles) -> float:
    """Returns the proportional memory (PSS) of processes."""
    found = 0
    for process in _all(roles):
        try:
            found += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return found / 1e6


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU between two moments."""

    seconds: float
    #: CPU seconds by role
    cpu: dict[str, float]
    #: cores that processes outside the benchmark used
    foreign: float

    @property
    def total(self) -> float:
        return sum(self.cpu.values())


class Meter:
    """Reads CPU times from its creation to `stop`."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self._begin = time.monotonic()
        self._cpu = _cpu_by_role(roles)
        self._machine = _busy_seconds()
        self._own = _own_seconds()

    def stop(self) -> Usage:
        seconds = time.monotonic() - self._begin
        cpu = {role: late - self._cpu[role] for role, late in _cpu_by_role(self._roles).items()}
        foreign = (_busy_seconds() - self._machine) - (_own_seconds() - self._own)
        return Usage(seconds, cpu, max(0.0, foreign / seconds))


def _all(roles: Roles) -> list[psutil.Process]:
    return [process for processes in roles.values() for process in processes]


def _cpu_by_role(roles: Roles) -> dict[str, float]:
    return {role: sum(map(cpu_seconds, processes)) for role, processes in roles.items()}


def cpu_seconds(process: psutil.Process) -> float:
    """Returns the CPU time of a process and of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def _own_seconds() -> float:
    own = psutil.Process()
    return sum(map(cpu_seconds, [own, *own.children(recursive=True)]))
