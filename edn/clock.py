"""The wall clock of a process: `time.time`, unless a test steps it.

`EDN_TEST_CLOCK_FILE` names a file that holds seconds to be added, and is read at every use; for tests only,
which use it as other machines have an administrator or a time daemon that steps the clock. A file that is
missing or unreadable adds nothing: a clock never fails.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

VARIABLE = "EDN_TEST_CLOCK_FILE"

_stepped_by = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def now() -> float:
    """Seconds since 1970."""
    return time.time() if _stepped_by is None else time.time() + offset(_stepped_by)


def offset(file: Path) -> float:
    """The seconds that the file holds; 0 when it holds no number."""
    try:
        seconds = float(file.read_text())
    except (OSError, ValueError):
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0
