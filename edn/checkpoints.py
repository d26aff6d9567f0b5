"""Places at which a test stops a process, to kill it or another one just there. For tests only.

`EDN_TEST_CHECKPOINTS` in the environment of a process names a folder. A process that reaches a checkpoint for
which there is a file of its name in that folder renames it to `<name>.reached` and waits until that is gone.
Without the variable a checkpoint costs a comparison.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

VARIABLE = "EDN_TEST_CHECKPOINTS"
_FOLDER = os.environ.get(VARIABLE)


async def reached(name: str) -> None:
    if _FOLDER is None:
        return
    armed = Path(_FOLDER) / name
    waiting = armed.with_suffix(".reached")
    try:
        armed.rename(waiting)
    except FileNotFoundError:
        return
    while waiting.exists():  # noqa: ASYNC110  another process takes it away
        await asyncio.sleep(0.02)
