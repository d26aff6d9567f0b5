"""Defines a matcher, and the checks that all matchers make of their inputs."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from edn.arrays import Floats, Ints
from edn.errors import InvalidInput

Scalar = TypeVar("Scalar", np.int64, np.float64)


@runtime_checkable
class Matcher(Protocol):
    """Finds the rectangles that contain a point, among many that come and go.

    Coordinates are doubles; missing is -inf; a rectangle is closed; [-inf, +inf] is unconstrained. Inputs
    with fewer columns than `dimensions` are padded: rectangles are unconstrained there, points miss it.
    A rectangle with lo > hi, or NaN, in any column contains nothing. One thread at a time may call `insert`,
    `delete` and `grow`; any number may call `match` meanwhile, and sees a rectangle whole or not at all.
    """

    @property
    def dimensions(self) -> int:
        """The number of columns."""

    def __len__(self) -> int: ...

    def insert(self, ids: Ints, lo: Floats, hi: Floats) -> None:
        """Adds rectangles, visible to the next match. Ids are the caller's: not negative, none in use."""

    def delete(self, ids: Ints) -> None:
        """Removes rectangles; ids that are not here are ignored."""

    def match(self, points: Floats) -> tuple[Ints, Ints]:
        """`(starts, ids)`: the rectangles `ids[starts[i]:starts[i + 1]]`, in any order, contain point i."""

    def grow(self, dimensions: int) -> None:
        """Adds columns, in which what is here is unconstrained."""


def checked_rectangles(
    dimensions: int, ids: npt.ArrayLike, lo: npt.ArrayLike, hi: npt.ArrayLike
) -> tuple[Ints, Floats, Floats]:
    """The arguments of `insert` as arrays that a kernel takes, padded to all columns."""
    ids = checked_ids(ids)
    lo, hi = _matrix(lo, dimensions, -np.inf), _matrix(hi, dimensions, np.inf)
    if not len(ids) == len(lo) == len(hi):
        raise InvalidInput(f"{len(ids)} ids for {len(lo)} lower and {len(hi)} upper bounds")
    if len(ids) > 1:
        in_order = np.sort(ids)
        repeated = in_order[1:][in_order[1:] == in_order[:-1]]
        if len(repeated):
            raise InvalidInput(f"id {repeated[0]} is given twice")
    if len(ids) and ids.min() < 0:
        raise InvalidInput(f"id {ids.min()} is negative")
    return ids, lo, hi


def checked_ids(ids: npt.ArrayLike) -> Ints:
    """The argument of `delete` as an array that a kernel takes."""
    array = _array(ids, np.int64)
    if array.ndim != 1:
        raise InvalidInput(f"ids must be a vector, not an array of {array.ndim} dimensions")
    return array


def checked_points(dimensions: int, points: npt.ArrayLike) -> Floats:
    """The argument of `match` as an array that a kernel takes, padded to all columns."""
    array = _matrix(points, dimensions, -np.inf)
    if np.isnan(array).any():
        row, column = np.argwhere(np.isnan(array))[0]
        raise InvalidInput(f"NaN is no coordinate: row {row}, column {column}")
    return array


def checked_growth(old: int, new: int) -> None:
    """`grow` takes no columns away."""
    if new < old:
        raise InvalidInput(f"a matcher cannot shrink from {old} to {new} dimensions")


def already_there(id_: int) -> InvalidInput:
    """The error of an `insert` whose id is in use."""
    return InvalidInput(f"id {id_} is already in the index")


def _matrix(values: npt.ArrayLike, dimensions: int, padding: float) -> Floats:
    array = _array(values, np.float64)
    if array.ndim != 2 or array.shape[1] > dimensions:
        raise InvalidInput(
            f"expected rows of at most {dimensions} columns, got an array of shape {array.shape}"
        )
    if array.shape[1] == dimensions:
        return array
    padded = np.full((len(array), dimensions), padding)
    padded[:, : array.shape[1]] = array
    return padded


def _array(values: npt.ArrayLike, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """What a kernel with an explicit signature takes: of this type, in rows, writable; a copy if need be."""
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.carray:
        return values
    return np.require(values, dtype=dtype, requirements=("C", "A", "W"))
