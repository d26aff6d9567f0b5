"""Memory of this process."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

_PAGE = 4096


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """Returns glibc's `malloc_trim`, or None if the C library lacks it."""
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return found


def release() -> None:
    """Returns freed memory to the system. Takes milliseconds; any thread may call it.

    glibc keeps freed arrays of up to 32 MB, because each raises `M_MMAP_THRESHOLD`. Without this call, a
    tenant that creates and deletes topics would look like a leak. Call it after dropping large structures,
    never on the hot path.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


def resident(pid: int | str = "self") -> int:
    """Returns the resident memory of a process in bytes; 0 if unknown."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0
