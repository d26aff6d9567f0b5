"""What all compiled loops of this package share: how they are compiled, and the names of the arrays.

Kernels release the interpreter's lock, are cached on disk, and take plain arrays; none of them checks its
arguments. Their callers do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile on first use, keep the result beside the module, run without the interpreter's lock."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
