"""Returns freed memory to the system, and reads how much this process takes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

_PAGE = 4096


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """Return glibc's `malloc_trim`, or None where the C library has none."""
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return found


def release() -> None:
    """Give memory that was freed back to the system. Takes milliseconds; any thread may call it.

    glibc keeps freed arrays of up to 32 MB for later: it raises its threshold for memory of its own
    (`M_MMAP_THRESHOLD`) with every such array that is freed. After the matchers of many topics were dropped
    the process would keep their peak for good, and a tenant that makes and deletes topics would look like a
    leak. Call it after large structures went, never on the hot path.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


def resident(pid: int | str = "self") -> int:
    """Return the resident memory of a process in bytes; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0
