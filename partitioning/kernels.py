"""What all compiled loops of this package share: how they are compiled, and the names of the arrays.

Kernels release the interpreter's lock, are cached on disk, and take plain arrays; none of them checks its
arguments. Their callers do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edn.compiling import on_first_use

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

kernel = on_first_use
