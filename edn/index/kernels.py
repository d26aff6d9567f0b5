"""Low-level kernels over coded rectangles: codes, blocks and tiles, and how they are compared.

A coordinate is *coded* as one byte, by bins: `find_bin` counts the edges at or below it. Bins are numbered
so that codes of coordinates and codes of bounds compare like the values they stand for:

    lo code <  code of x  <  hi code     x is inside in this column, for certain
    lo code == code of x, or == hi code  x and a bound share a bin: only the doubles can tell
    otherwise                            x is outside, for certain

Rectangles stand in **blocks** of 64, whose codes lie column by column, 64 low ones and then 64 high ones, so
that one vector instruction compares a whole block and yields one bit a rectangle (`block_masks`).

64 blocks make a **tile**. For each column and each of 64 coarse bins (a code without its two last bits) a
tile has one word with one bit a block: whether any of its rectangles reaches into that bin (`reach`). The AND
of one such word a column is the set of blocks that may contain a point; all others are never looked at.
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

#: rectangles in a block, and blocks in a tile: the bits of a word
BLOCK = 64
#: bytes that one column of one block takes: 64 low codes, 64 high codes
COLUMN_BYTES = 2 * BLOCK
#: and those of a tile, one block after the other; then comes its next column
TILE_COLUMN_BYTES = BLOCK * COLUMN_BYTES
#: coarse bins a column
REACHES = 64
#: fine code >> REACH_SHIFT is the coarse bin
REACH_SHIFT = 2
#: the codes of a bound that nothing is beyond, and of an interval that nothing is inside
LOWEST_CODE, HIGHEST_CODE = 0, 255
#: the edges of one column as `find_bin` wants them: 16 coarse ones, then 16 × 16 fine ones
FAN = 16
EDGES_WIDTH = FAN + FAN * FAN

Codes = npt.NDArray[np.uint8]


@intrinsic
def _prefetch(_context: Any, bounds: Any, _row: Any) -> Any:
    """Ask for the memory where a row of a matrix begins, without waiting for it."""
    signature = types.void(bounds, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(array.strides, 0)
        byte = ir.IntType(8).as_pointer()
        address = builder.gep(builder.bitcast(array.data, byte), [builder.mul(arguments[1], stride)])
        integer = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, integer, integer, integer])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        # to read, to be kept in all caches, data
        builder.call(function, [address, *(ir.Constant(integer, number) for number in (0, 3, 1))])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _block_masks(_context: Any, codes: Any, _offset: Any, _code: Any) -> Any:
    """Compares one column of a block, its 128 bytes at `codes[offset:]`, with the code of a coordinate.

    Returns two words: bit j of the first says that rectangle j may contain the coordinate, bit j of the
    second that it does for certain. Written as vector instructions of LLVM, which fit any processor: four
    compares with AVX-512, 16 with SSE or NEON. `codes` should begin on a multiple of 64 bytes: a load that
    crosses cache lines costs double.
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


# what the compiler sees as instructions, the type checker sees as functions
prefetch = cast(Callable[[Floats, int], None], _prefetch)
block_masks = cast(Callable[[Codes, int, np.uint8], tuple[np.uint64, np.uint64]], _block_masks)
#: to a signed word, inside kernels
integer = cast(Callable[[Any], int], np.int64)


@kernel("i8(f8, f8[::1])")
def find_bin(x: float, edges: Floats) -> int:
    """How many of a column's edges are at or below x.

    `edges` is one row of `edn.index.bins.Bins.edges`: every 16th edge, then all of them, the rest NaN, which
    no number reaches. Two counts of 16 take four vector compares and no branch; a binary search, which
    mispredicts every second step, takes twice as long.
    """
    coarse = 0
    for i in range(FAN):
        coarse += integer(edges[i] <= x)
    # NaN pads the last coarse edge, so the run of fine ones always lies inside the row
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
    """Code the points in those columns that matter, and gather their values."""
    for row in range(points.shape[0]):
        for k in range(columns.shape[0]):
            x = points[row, columns[k]]
            values[row, k] = x
            codes[row, k] = find_bin(x, edges[k]) * strides[k] + 1


@kernel("void(f8[:,::1], f8[:,::1], f8[:,::1], i8[::1], u1[:,::1], u1[:,::1])")
def code_bounds(lo: Floats, hi: Floats, edges: Floats, strides: Ints, low: Codes, high: Codes) -> None:
    """Code rectangles so that they compare with coded points as the head of this module says.

    A bound that falls on an edge of a column with stride 2 gets the odd place between two bins: then no point
    shares its code, and the doubles need not be asked. An empty interval gets codes that nothing is inside.
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
    """Where the first column of a block begins; the others follow at every `TILE_COLUMN_BYTES`.

    A tile lies column by column, so that a pass over some columns of all its blocks reads adjacent memory.
    """
    return (block >> 6) * columns * TILE_COLUMN_BYTES + (block & 63) * COLUMN_BYTES


@kernel("void(i8, u1[:,::1], u1[:,::1], i8[::1], u1[::1], u8[:,:,::1])")
def place(start: int, low: Codes, high: Codes, order: Ints, blocks: Codes, reach: Words) -> None:
    """Writes the codes and the reach of rectangles, in this order, into slots start, start + 1, …"""
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
