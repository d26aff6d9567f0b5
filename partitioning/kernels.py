"""The names of the arrays that compiled loops take, and how those loops are compiled.

Kernels release the interpreter's lock and take plain arrays; none of them checks its arguments. Their callers
do.
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
