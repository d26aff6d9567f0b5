"""Gathers some of many lines by a compiled loop: what a frame to one server needs of a batch of events."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edn.compiling import kernel
from edn.lines import Ends


def pick(lines: bytes, ends: Ends, places: npt.NDArray[np.int64]) -> bytes:
    """The lines at `places`, which rise."""
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1]
    first, last = starts[places], ends[places]
    picked = np.empty(int((last - first).sum()), dtype=np.uint8)
    _copy(np.frombuffer(lines, dtype=np.uint8), first, last, picked)
    return picked.tobytes()


@kernel("void(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], uint8[::1])")
def _copy(lines: npt.NDArray[np.uint8], starts: Ends, ends: Ends, picked: npt.NDArray[np.uint8]) -> None:
    at = 0
    for place in range(len(starts)):
        for byte in range(starts[place], ends[place]):
            picked[at] = lines[byte]
            at += 1
