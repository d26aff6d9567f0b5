"""Kernels over coded rectangles: codes, blocks and tiles.

A coordinate is *coded* as one byte, by bins: `find_bin` counts the edges at or below it. Bins are numbered so
that codes of coordinates and of bounds compare like their values:

    lo code <  code of x  <  hi code     x is certainly inside in this column
    lo code == code of x, or == hi code  x and a bound share a bin: the doubles decide
    otherwise                            x is certainly outside

Rectangles are stored in **blocks** of 64. The codes of a block are stored column by column, 64 low ones and
then 64 high ones, so that one vector instruction compares a whole block and yields one bit per rectangle
(`block_masks`).

64 blocks form a **tile**. For each column and each of 64 coarse bins (a code without its two last bits), a
tile has one word with one bit per block: whether any of its rectangles reaches into that bin (`reach`). The
AND of one such word per column is the set of blocks that may contain a point; all others are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]  # it brings no types
from numba import types
from numba.extending import intrinsic

from edn.arrays import Floats, Ints, Words
from edn.index.compilation import kernel

#: rectangles per block, and blocks per tile: the bits of a word
BLOCK = 64
#: bytes of one column of a block: 64 low codes, 64 high codes
COLUMN_BYTES = 2 * BLOCK
#: bytes of one column of a tile, block after block
TILE_COLUMN_BYTES = BLOCK * COLUMN_BYTES
#: coarse bins per column
REACHES = 64
#: fine code >> REACH_SHIFT is the coarse bin
REACH_SHIFT = 2
#: codes of unconstrained bounds; reversed, of an empty interval
LOWEST_CODE, HIGHEST_CODE = 0, 255
#: layout of a column's edges for `find_bin`: 16 coarse ones, then 16 × 16 fine ones
FAN = 16
EDGES_WIDTH = FAN + FAN * FAN

Codes = npt.NDArray[np.uint8]


@intrinsic
def _prefetch(_context: Any, bounds: Any, _row: Any) -> Any:
    """Prefetches the start of a matrix row."""
    signature = types.void(bounds, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(array.strides, 0)
        byte = ir.IntType(8).as_pointer()
        address = builder.gep(builder.bitcast(array.data, byte), [builder.mul(arguments[1], stride)])
        integer = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, integer, integer, integer])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        # For reading, into all caches, data.
        builder.call(function, [address, *(ir.Constant(integer, number) for number in (0, 3, 1))])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _block_masks(_context: Any, codes: Any, _offset: Any, _code: Any) -> Any:
    """Compares one column of a block, its 128 bytes at `codes[offset:]`, with the code of a coordinate.

    Returns two words: bit j of the first means that rectangle j may contain the coordinate, bit j of the
    second that it certainly does. Written as LLVM vector instructions, for any processor: four compares with
    AVX-512, 16 with SSE or NEON. `codes` should begin at a multiple of 64 bytes: a load across cache lines
    takes twice as long.
    """
    words = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]  # numba leaves it untyped
    signature = words(codes, types.int64, types.uint8)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset, code = arguments
        vector = ir.VectorType(ir.IntType(8), BLOCK)
        word = ir.IntType(64)
        undefined = ir.Constant(vector, ir.Undefined)
        first = builder.gep(context.make_array(signature.args[0])(context, builder, array).data, [offset])
        second = builder.gep(first, [ir.Constant(word, BLOCK)])
        low = builder.load(builder.bitcast(first, vector.as_pointer()), align=1)
        high = builder.load(builder.bitcast(second, vector.as_pointer()), align=1)
        one = builder.insert_element(undefined, code, ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
        point = builder.shuffle_vector(one, undefined, lanes)

        def both(operator: str) -> Any:
            above = builder.bitcast(builder.icmp_unsigned(operator, low, point), word)
            below = builder.bitcast(builder.icmp_unsigned(operator, point, high), word)
            return builder.and_(above, below)

        return context.make_tuple(builder, signature.return_type, [both("<="), both("<")])

    return signature, generate


# Instructions to the compiler, functions to the type checker.
prefetch = cast(Callable[[Floats, int], None], _prefetch)
block_masks = cast(Callable[[Codes, int, np.uint8], tuple[np.uint64, np.uint64]], _block_masks)
#: conversion to a signed word inside kernels
integer = cast(Callable[[Any], int], np.int64)


@kernel("i8(f8, f8[::1])")
def find_bin(x: float, edges: Floats) -> int:
    """Counts a column's edges at or below x.

    `edges` is one row of `edn.index.bins.Bins.edges`: every 16th edge, then all of them, padded with NaN. Two
    counts of 16 take four vector compares and no branch; a binary search mispredicts every second step and
    takes twice as long.
    """
    coarse = 0
    for i in range(FAN):
        coarse += integer(edges[i] <= x)
    # NaN pads the last coarse edge, so the run of fine edges is always inside the row.
    base = FAN + coarse * FAN
    fine = 0
    for i in range(FAN):
        fine += integer(edges[base + i] <= x)
    return coarse * FAN + fine


@kernel("void(f8[:,::1], i8[::1], f8[:,::1], i8[::1], u1[:,::1], f8[:,::1])")
def code_points(
    points: Floats,
    columns: Ints,
    edges: Floats,
    strides: Ints,
    codes: Codes,
    values: Floats,
) -> None:
    """Codes the points in the given columns, and gathers their values."""
    for row in range(points.shape[0]):
        for k in range(columns.shape[0]):
            x = points[row, columns[k]]
            values[row, k] = x
            codes[row, k] = find_bin(x, edges[k]) * strides[k] + 1


@kernel("void(f8[:,::1], f8[:,::1], f8[:,::1], i8[::1], u1[:,::1], u1[:,::1])")
def code_bounds(lo: Floats, hi: Floats, edges: Floats, strides: Ints, low: Codes, high: Codes) -> None:
    """Codes rectangles for comparison with coded points (see the module's docstring).

    A bound on an edge of a column with stride 2 gets the odd code between two bins: no point shares it, so
    the doubles are not needed. An empty interval gets codes that contain nothing.
    """
    for row in range(lo.shape[0]):
        for k in range(edges.shape[0]):
            a, b, stride = lo[row, k], hi[row, k], strides[k]
            if not a <= b:
                low[row, k], high[row, k] = HIGHEST_CODE, LOWEST_CODE
                continue
            first, last = find_bin(a, edges[k]), find_bin(b, edges[k])
            low_code, high_code = first * stride + 1, last * stride + 1
            if a == -np.inf:
                low_code = LOWEST_CODE
            elif stride == 2 and first > 0 and edges[k, FAN + first - 1] == a:
                low_code -= 1
            if b == np.inf:
                high_code = HIGHEST_CODE
            elif stride == 2 and edges[k, FAN + last] == np.nextafter(b, np.inf):
                high_code += 1
            low[row, k], high[row, k] = low_code, high_code


@kernel("i8(i8, i8)")
def column_offset(block: int, columns: int) -> int:
    """Returns the offset of a block's first column; the others follow at every `TILE_COLUMN_BYTES`.

    A tile is stored column by column, so a pass over some columns of all its blocks reads adjacent memory.
    """
    return (block >> 6) * columns * TILE_COLUMN_BYTES + (block & 63) * COLUMN_BYTES


@kernel("void(i8, u1[:,::1], u1[:,::1], i8[::1], u1[::1], u8[:,:,::1])")
def place(start: int, low: Codes, high: Codes, order: Ints, blocks: Codes, reach: Words) -> None:
    """Writes the codes and the reach of rectangles to slots start, start + 1, …, in the given order."""
    columns = low.shape[1]
    for i in range(order.shape[0]):
        slot = start + i
        row = order[i]
        block, lane = slot >> 6, slot & 63
        bit = np.uint64(1) << np.uint64(block & 63)
        offset = column_offset(block, columns) + lane
        for k in range(columns):
            a, b = low[row, k], high[row, k]
            blocks[offset + k * TILE_COLUMN_BYTES] = a
            blocks[offset + k * TILE_COLUMN_BYTES + BLOCK] = b
            for bin_ in range(a >> REACH_SHIFT, (b >> REACH_SHIFT) + 1):
                reach[block >> 6, k, bin_] |= bit
