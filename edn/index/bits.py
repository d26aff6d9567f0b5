"""Bit instructions for compiled loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it brings no types
from numba import types
from numba.extending import intrinsic


@intrinsic
def _trailing_zeros(_context: Any, _word: Any) -> Any:
    """Returns the position of the lowest set bit of a non-zero word: one instruction."""

    def generate(_: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def _leading_zeros(_context: Any, _word: Any) -> Any:
    """Returns the number of zero bits above the highest set bit of a non-zero word: one instruction."""

    def generate(_: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def _population(_context: Any, _word: Any) -> Any:
    """Counts the set bits of a word: one instruction."""

    def generate(_: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


# Instructions to the compiler, functions to the type checker.
leading_zeros = cast(Callable[[np.uint64], int], _leading_zeros)
trailing_zeros = cast(Callable[[np.uint64], int], _trailing_zeros)
population = cast(Callable[[np.uint64], int], _population)
