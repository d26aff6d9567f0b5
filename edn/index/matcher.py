"""The interface of matchers, and checks of their arguments."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from edn.arrays import Floats, Ints
from edn.errors import InvalidInput

Scalar = TypeVar("Scalar", np.int64, np.float64)


@runtime_checkable
class Matcher(Protocol):
    """Finds the rectangles that contain a point.

    Coordinates are doubles; missing is -inf; a rectangle is closed; [-inf, +inf] is unconstrained. Missing
    columns of arguments are unconstrained in rectangles and missing in points. A rectangle with lo > hi, or
    NaN, in any column contains nothing. One thread at a time may call `insert`, `delete` and `grow`; any
    number of threads may call `match` meanwhile and see a rectangle completely or not at all.
    """

    @property
    def dimensions(self) -> int:
        """The number of columns."""

    def __len__(self) -> int: ...

    def insert(self, ids: Ints, lo: Floats, hi: Floats) -> None:
        """Adds rectangles, visible to the next match. The caller chooses ids: not negative, not in use."""

    def delete(self, ids: Ints) -> None:
        """Removes rectangles; ignores unknown ids."""

    def match(self, points: Floats) -> tuple[Ints, Ints]:
        """Returns `(starts, ids)`: `ids[starts[i]:starts[i + 1]]`, in any order, contain point i."""

    def grow(self, dimensions: int) -> None:
        """Adds columns, in which existing rectangles are unconstrained."""


def checked_rectangles(
    dimensions: int, ids: npt.ArrayLike, lo: npt.ArrayLike, hi: npt.ArrayLike
) -> tuple[Ints, Floats, Floats]:
    """Converts the arguments of `insert` into arrays for kernels, padded to all columns."""
    ids = checked_ids(ids)
    lo, hi = _matrix(lo, dimensions, -np.inf), _matrix(hi, dimensions, np.inf)
    if not len(ids) == len(lo) == len(hi):
        raise InvalidInput(f"ids, lo and hi must have equal lengths, got {len(ids)}, {len(lo)} and {len(hi)}")
    if len(ids) > 1:
        in_order = np.sort(ids)
        repeated = in_order[1:][in_order[1:] == in_order[:-1]]
        if len(repeated):
            raise InvalidInput(f"ids must be unique, got {repeated[0]} twice")
    if len(ids) and ids.min() < 0:
        raise InvalidInput(f"ids must be 0 or more, got {ids.min()}")
    return ids, lo, hi


def checked_ids(ids: npt.ArrayLike) -> Ints:
    """Converts the argument of `delete` into an array for kernels."""
    array = _array(ids, np.int64)
    if array.ndim != 1:
        raise InvalidInput(f"ids must be a vector, got an array of {array.ndim} dimensions")
    return array


def checked_points(dimensions: int, points: npt.ArrayLike) -> Floats:
    """Converts the argument of `match` into an array for kernels, padded to all columns."""
    array = _matrix(points, dimensions, -np.inf)
    if np.isnan(array).any():
        row, column = np.argwhere(np.isnan(array))[0]
        raise InvalidInput(f"coordinates must be numbers, got NaN in row {row}, column {column}")
    return array


def checked_growth(old: int, new: int) -> None:
    if new < old:
        raise InvalidInput(f"the dimensions of a matcher must be {old} or more, got {new}")


def duplicate_id(id_: int) -> InvalidInput:
    return InvalidInput(f"id {id_} is already in the index")


def _matrix(values: npt.ArrayLike, dimensions: int, padding: float) -> Floats:
    array = _array(values, np.float64)
    if array.ndim != 2 or array.shape[1] > dimensions:
        raise InvalidInput(
            f"rows must have at most {dimensions} columns, got an array of shape {array.shape}"
        )
    return array if array.shape[1] == dimensions else widened(array, dimensions, padding)


def widened(matrix: Floats, columns: int, padding: float) -> Floats:
    result = np.full((len(matrix), columns), padding)
    result[:, : matrix.shape[1]] = matrix
    return result


def _array(values: npt.ArrayLike, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """Converts values into an array for kernels with explicit signatures: row-major and writable."""
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.carray:
        return values
    return np.require(values, dtype=dtype, requirements=("C", "A", "W"))
