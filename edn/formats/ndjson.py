"""JSON lines: the bodies of a batch as one object, one line per body.

Log, frames and servers use this form. `cut` returns one line, `edn.protocol.gather` copies several.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ends = npt.NDArray[np.int64]
_BREAK = 10


def ends_of(lines: bytes) -> Ends:
    """Returns the end of each line, including its line break."""
    return np.flatnonzero(np.frombuffer(lines, dtype=np.uint8) == _BREAK) + 1


def cut(lines: bytes, ends: Ends, place: int) -> bytes:
    """Returns one line without its line break."""
    return lines[ends[place - 1] if place else 0 : ends[place] - 1]


def split(lines: bytes) -> list[bytes]:
    return lines.split(b"\n")[:-1]
