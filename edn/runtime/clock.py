"""The clock of this process: one `Timekeeper` on the machine's clocks.

    now()         network time, seconds since 1970: for instants, such as expiries
    steady()      steady time, seconds: for ages, such as how long an address has failed
    estimate()    estimated time of day: for people and signatures
    monotonic()   elapsed time, seconds: for leases and delays inside one process
    wall()        the machine's wall clock, for display only

Elapsed time is CLOCK_BOOTTIME if available, which includes suspension.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import structlog

from edn.runtime.timekeeper import Finding, Limits, Saved, Timekeeper

logger = structlog.get_logger()

#: seconds between two observations
OBSERVE_SECONDS = 1.0
#: seconds between two saves
SAVE_SECONDS = 60.0

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OFFSETS = Path("/proc/self/timens_offsets")


def wall() -> float:
    return time.time()


if hasattr(time, "CLOCK_BOOTTIME"):

    def monotonic() -> float:
        """Returns the seconds since the machine booted."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # pragma: no cover  not on Linux
    monotonic = time.monotonic


def _boot() -> str:
    """Identifies this boot of the machine; empty if elapsed time is not comparable over restarts."""
    if not hasattr(time, "CLOCK_BOOTTIME"):  # pragma: no cover  not on Linux
        return ""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        return ""
    try:  # a container may have an elapsed time of its own
        moved = next((line for line in _OFFSETS.read_text().splitlines() if line.startswith("boottime")), "")
    except OSError:
        moved = ""
    return " ".join([boot, *(part for part in moved.split()[1:] if part != "0")])


#: one per process
keeper = Timekeeper(monotonic=monotonic, wall=wall, boot=_boot())

now = keeper.now
steady = keeper.steady
estimate = keeper.estimate
instant = keeper.instant
moment = keeper.moment


def encode(saved: Saved) -> str:
    return msgspec.json.encode(saved).decode()


def decode(text: object) -> Saved | None:
    """Decodes a saved clock; None if it is missing or unreadable, because a clock must not fail."""
    try:
        return msgspec.json.decode(str(text), type=Saved) if text else None
    except msgspec.DecodeError:
        return None


def resume(text: object, limits: Limits, *, least: float = 0.0) -> None:
    """Continues from a saved clock; `least`: the last network time known from the data folder."""
    keeper.limits = limits
    announce(keeper.resume(decode(text), least=least))


def announce(finding: Finding | None) -> None:
    """Logs a jump of the wall clock, and its end."""
    suspicion = keeper.suspicion
    if finding == "jumped" and suspicion is not None:
        logger.warning(
            "clock_jump_detected",
            seconds=round(suspicion.lead, 3),
            network_time=round(keeper.now(), 3),
            wall_time=round(wall(), 3),
            trusted_in=keeper.limits.trust,
        )
    elif finding == "returned":
        logger.warning("clock_jump_ended", network_time=round(keeper.now(), 3))


def adopt(*, confirmed: bool = False) -> float:
    """Sets network time to a suspect wall clock; returns the step in seconds."""
    step = keeper.adopt(confirmed=confirmed)
    if step:
        logger.warning("clock_jump_adopted", seconds=round(step, 3), confirmed=confirmed)
    return step


def suspect() -> float | None:
    """Returns the difference of a suspect wall clock to network time, in seconds; otherwise None."""
    suspicion = keeper.suspicion
    return None if suspicion is None else round(suspicion.lead, 3)


async def keep(save: Callable[[str], Awaitable[None]], step: Callable[[], Awaitable[None]]) -> None:
    """Observes the clocks until cancelled.

    `save` writes to the data folder; `step` adopts a suspect clock that has become stable.
    """
    saved = -math.inf
    while True:
        finding = keeper.observe()
        announce(finding)
        if finding == "agreed":
            await step()
        if finding is not None or monotonic() - saved >= SAVE_SECONDS:
            await save(encode(keeper.save()))
            saved = monotonic()
        await asyncio.sleep(OBSERVE_SECONDS)
