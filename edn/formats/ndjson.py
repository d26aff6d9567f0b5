"""Many JSON texts as one: a line each, so that a batch of bodies is one object and not a thousand.

The texts go through the log, the frames and the servers in this form. Whoever needs one cuts it out, and
whoever needs some has them gathered by `edn.protocol.gather`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ends = npt.NDArray[np.int64]
_BREAK = 10


def ends_of(lines: bytes) -> Ends:
    """Where each line ends, its break included."""
    return np.flatnonzero(np.frombuffer(lines, dtype=np.uint8) == _BREAK) + 1


def cut(lines: bytes, ends: Ends, place: int) -> bytes:
    """One line, without its break."""
    return lines[ends[place - 1] if place else 0 : ends[place] - 1]


def split(lines: bytes) -> list[bytes]:
    return lines.split(b"\n")[:-1]
