"""Compiles kernels to machine code, once per machine, and caches the result.

Kernels release the interpreter lock. `kernel` compiles when the module is loaded, `on_first_use` at the first
call; a service calls everything once before it reports that it is ready.

The compiled code is cached (`cache=True`) in the first writable folder of these, as numba defines:

1. the folder that the environment variable NUMBA_CACHE_DIR names,
2. `__pycache__` beside the module,
3. the user's cache folder (`~/.cache/numba` on Linux), which serves packages that are installed read-only,

otherwise in a folder of our own under the temporary folder. It must be private to this user, because code
from it is executed. Without that, every process compiles.
"""

from __future__ import annotations

import getpass
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])


def kernel(*signatures: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function to be compiled for `signatures`, at once or from the cache.

    No call compiles anything later, so a running service never waits for the compiler.
    """

    def compile_it(function: Callable[P, R]) -> Callable[P, R]:
        # "numpy": a division by zero is infinity; the check for an exception would cost time.
        return _cached(function, list(signatures), boundscheck=False, error_model="numpy")

    return compile_it


def on_first_use(function: F) -> F:
    """Decorates a function to be compiled for the arguments of its first call."""
    return _cached(function)


def on_first_use_with_finite(function: F) -> F:
    """Like `on_first_use`, for finite values: minima and maxima are vectorized, rounding is unchanged."""
    return _cached(function, fastmath={"nnan", "ninf", "nsz"})


def _cached(function: F, *arguments: object, **options: object) -> F:
    jit = cast(Callable[..., Callable[[F], F]], numba.njit)
    try:
        return jit(*arguments, cache=True, nogil=True, **options)(function)
    except RuntimeError as problem:
        if "no locator available" not in str(problem):
            raise
    private = private_folder()
    if private is not None:
        numba.config.CACHE_DIR = str(private)  # type: ignore[attr-defined]  # defined at run time
    return jit(*arguments, cache=private is not None, nogil=True, **options)(function)


def private_folder() -> Path | None:
    """Creates a private folder for compiled code under the temporary one; None if it is not private."""
    try:
        folder = Path(tempfile.gettempdir()) / f"edn-kernels-{_user()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.stat(follow_symlinks=False)
    except OSError:
        return None
    ours = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    if hasattr(os, "getuid"):
        ours = ours and status.st_uid == os.getuid()
    return folder if ours else None


def _user() -> int | str:
    """Returns the user's number or name; a container's user often has no name."""
    return os.getuid() if hasattr(os, "getuid") else getpass.getuser()
