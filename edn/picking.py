"""Gathers some of a batch of events by one compiled loop: what a frame to one server needs of a record."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edn.compiling import kernel
from edn.lines import Ends

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


def pick(
    chosen: npt.NDArray[np.bool_], stamps: Ints, points: Floats, lines: bytes, ends: Ends
) -> tuple[Ints, Ints, Floats, Bytes]:
    """Of the events that are chosen: their places, stamps, points and lines."""
    return _pick(chosen, stamps, points, np.frombuffer(lines, dtype=np.uint8), ends)


@kernel(
    "Tuple((int64[::1], int64[::1], float64[:, ::1], uint8[::1]))("
    "Array(bool, 1, 'A', readonly=True), Array(int64, 1, 'C', readonly=True), "
    "Array(float64, 2, 'C', readonly=True), Array(uint8, 1, 'C', readonly=True), "
    "Array(int64, 1, 'C', readonly=True))"
)
def _pick(
    chosen: npt.NDArray[np.bool_], stamps: Ints, points: Floats, lines: Bytes, ends: Ends
) -> tuple[Ints, Ints, Floats, Bytes]:
    count = 0
    size = 0
    for place in range(len(chosen)):
        if chosen[place]:
            count += 1
            size += ends[place] - (ends[place - 1] if place else 0)
    places = np.empty(count, dtype=np.int64)
    some_stamps = np.empty(count, dtype=np.int64)
    some_points = np.empty((count, points.shape[1]), dtype=np.float64)
    some_lines = np.empty(size, dtype=np.uint8)
    row = 0
    at = 0
    place = 0
    while place < len(chosen):
        if not chosen[place]:
            place += 1
            continue
        # Neighbours are copied together: most events concern most servers, or hardly any.
        first = place
        while place < len(chosen) and chosen[place]:
            places[row + place - first] = place
            place += 1
        some_stamps[row : row + place - first] = stamps[first:place]
        some_points[row : row + place - first] = points[first:place]
        begin = ends[first - 1] if first else 0
        size = ends[place - 1] - begin
        some_lines[at : at + size] = lines[begin : begin + size]
        at += size
        row += place - first
    return places, some_stamps, some_points, some_lines
