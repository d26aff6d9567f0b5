"""Steps the wall clock of a service, as an administrator or a time daemon would.

`EDN_TEST_CLOCK_FILE` names a file that holds seconds. They are added to the wall clock at every observation.
A file that is missing or unreadable adds nothing: a clock never fails. The elapsed time is real.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

VARIABLE = "EDN_TEST_CLOCK_FILE"


def set_clock(file: Path, seconds: float) -> None:
    """Set how far the processes that read this file are from the true time; nobody reads half a number."""
    fresh = file.with_suffix(".new")
    fresh.write_text(str(seconds))
    fresh.replace(file)


def offset(file: Path) -> float:
    """Return the seconds that the file holds; 0 when it holds no number."""
    try:
        seconds = float(file.read_text())
    except (OSError, ValueError):
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def plant(file: str) -> None:
    """Add the seconds of the file to the wall clock of this process; an empty name adds nothing."""
    if not file:
        return
    from edn.runtime import clock

    path = Path(file)

    def wall() -> float:
        return time.time() + offset(path)

    clock.wall = wall
    # Begun anew, not replaced: the readings of the module are bound to this timekeeper.
    keeper = clock.keeper
    keeper.__init__(monotonic=clock.monotonic, wall=wall, boot=keeper._boot)  # type: ignore[misc]
