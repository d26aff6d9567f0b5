"""The clock of this process: one `Timekeeper` on the machine's clocks, which every module reads.

    now()         network time, seconds since 1970: for instants, such as expiries
    steady()      steady time, seconds: for ages, such as how long an address has failed
    estimate()    the best guess of the civil time: for people and signatures
    monotonic()   elapsed time, seconds: for leases and pauses inside one process
    wall()        the machine's wall clock as it is. Nobody decides anything by it

Elapsed time is CLOCK_BOOTTIME where there is one, which goes on while the machine is suspended.
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

#: seconds between two observations, and between two times that the clock is saved
OBSERVE_SECONDS = 1.0
SAVE_SECONDS = 60.0

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OFFSETS = Path("/proc/self/timens_offsets")


def wall() -> float:
    """Return the wall clock: seconds since 1970."""
    return time.time()


if hasattr(time, "CLOCK_BOOTTIME"):

    def monotonic() -> float:
        """Return the elapsed time: seconds since the machine was booted."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # pragma: no cover  not on Linux
    monotonic = time.monotonic


def _boot() -> str:
    """Name this boot of the machine; empty where elapsed time cannot be compared over restarts."""
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


#: one for each process: whatever is hosted here shares the machine's clocks
keeper = Timekeeper(monotonic=monotonic, wall=wall, boot=_boot())

now = keeper.now
steady = keeper.steady
estimate = keeper.estimate
instant = keeper.instant
moment = keeper.moment


def encode(saved: Saved) -> str:
    return msgspec.json.encode(saved).decode()


def decode(text: object) -> Saved | None:
    """Read what was saved; None where it is missing or unreadable, because a clock never fails."""
    try:
        return msgspec.json.decode(str(text), type=Saved) if text else None
    except msgspec.DecodeError:
        return None


def resume(text: object, limits: Limits, *, least: float = 0.0) -> None:
    """Go on from what a data folder holds; `least`: the last network time that it knows of."""
    keeper.limits = limits
    announce(keeper.resume(decode(text), least=least))


def announce(finding: Finding | None) -> None:
    """Log what an observation found."""
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
    """Make a suspect wall clock network time, and log it; return the seconds of the step."""
    step = keeper.adopt(confirmed=confirmed)
    if step:
        logger.warning("clock_jump_adopted", seconds=round(step, 3), confirmed=confirmed)
    return step


def suspect() -> float | None:
    """Return the seconds by which the wall clock departs from network time, None unless it is suspect."""
    suspicion = keeper.suspicion
    return None if suspicion is None else round(suspicion.lead, 3)


async def keep(save: Callable[[str], Awaitable[None]], step: Callable[[], Awaitable[None]]) -> None:
    """Observe the clocks for as long as the process runs.

    `save` writes to the data folder; `step` is called when a suspect clock has agreed, and adopts it.
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
