"""Packs rows of a snapshot into chunks. Runs on the workers, on partitions sorted by id.

The rows of one subscription become its bounding rectangle, and rectangles are numbered in the order of the
ids. Invalid values become a problem, which is reported instead of a plan.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from edn.arrays import Floats
from partitioning.rows import CHUNK, Chunk
from partitioning.space import finite_range

Batches = Iterator[pa.RecordBatch]

#: schema of the packed rows
PACKED = "chunk binary, ids binary, count long, base array<double>, top array<double>, problem string"


def packer(dimensions: int, servers: tuple[str, ...]) -> Callable[[Batches], Batches]:
    def pack(batches: Batches) -> Batches:
        context = TaskContext.get()
        number = (context.partitionId() if context is not None else 0) << 40
        for table in _whole_ids(batches):
            packed, number = _pack(table, number, dimensions, servers)
            yield packed

    return pack


def _whole_ids(batches: Batches) -> Iterator[pa.Table]:
    """Yield tables of about one chunk, which do not separate the rows of one subscription."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= CHUNK:
            table = pa.Table.from_batches(held).combine_chunks()
            starts = _starts(table["id"])
            if len(starts) > 1:
                last = int(starts[-1])
                yield table.slice(0, last)
                held = table.slice(last).to_batches()
                count = table.num_rows - last
    if count:
        yield pa.Table.from_batches(held).combine_chunks()


def _starts(ids: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the first row of each id in a sorted column."""
    if len(ids) < 2:
        return np.zeros(len(ids), dtype=np.int64)
    other = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1))
    return np.concatenate([[0], 1 + np.flatnonzero(pc.fill_null(other, True).to_numpy())])


def _pack(
    table: pa.Table, number: int, dimensions: int, servers: tuple[str, ...]
) -> tuple[pa.RecordBatch, int]:
    problem = _problem(table)
    if problem is not None:
        return _refusal(problem, dimensions), number
    starts = _starts(table["id"])
    lo = np.minimum.reduceat(_matrix(table["lo"], dimensions, -np.inf), starts, axis=0)
    hi = np.maximum.reduceat(_matrix(table["hi"], dimensions, np.inf), starts, axis=0)
    names = pc.index_in(table["server"], value_set=pa.array(servers, pa.string())).fill_null(-1)
    hosts = names.to_numpy().astype(np.int32)
    two = np.minimum.reduceat(hosts, starts) != np.maximum.reduceat(hosts, starts)
    ids = table["id"].take(pa.array(starts))
    if two.any():
        name = ids[int(np.argmax(two))].as_py()
        return _refusal(f'subscription "{name}" has rectangles on two servers', dimensions), number
    count = len(starts)
    salt = table["salt"].to_numpy()[starts].view(np.uint64)
    rows = np.arange(number, number + count, dtype=np.int64)
    chunk = Chunk(rows, salt, hosts[starts], lo, hi)
    base, top = finite_range(lo, hi)
    ids_bytes = pickle.dumps(ids.to_pylist(), protocol=5)
    return _record(chunk.to_bytes(), ids_bytes, count, base.tolist(), top.tolist(), None), number + count


def _refusal(problem: str, dimensions: int) -> pa.RecordBatch:
    return _record(b"", b"", 0, [None] * dimensions, [None] * dimensions, problem)


def _record(
    chunk: bytes, ids: bytes, count: int, base: list[Any], top: list[Any], problem: str | None
) -> pa.RecordBatch:
    floats = pa.list_(pa.float64())
    return pa.record_batch(
        {
            "chunk": pa.array([chunk], pa.binary()),
            "ids": pa.array([ids], pa.binary()),
            "count": pa.array([count], pa.int64()),
            "base": pa.array([base], floats),
            "top": pa.array([top], floats),
            "problem": pa.array([problem], pa.string()),
        }
    )


def _problem(table: pa.Table) -> str | None:
    """Describe the first invalid value with its subscription; None if all are valid."""
    if table["id"].null_count:
        return 'column "id" of the snapshot has a null'

    def at(wrong: Any) -> str:
        return f'subscription "{table["id"][int(np.argmax(wrong))].as_py()}"'

    for name in ("lo", "hi"):
        column = table[name]
        if column.null_count:
            return f'{at(column.is_null().to_numpy())} has no "{name}"'
        if column.combine_chunks().flatten().null_count:
            return f'column "{name}" of the snapshot has a null coordinate'
    lengths = [pc.list_value_length(table[name]).to_numpy() for name in ("lo", "hi")]
    if (lengths[0] != lengths[1]).any():
        return f'{at(lengths[0] != lengths[1])} has "lo" and "hi" of different lengths'
    low, high = (table[name].combine_chunks().flatten().to_numpy() for name in ("lo", "hi"))
    if not (low <= high).all():
        place = int(np.argmin(low <= high))
        row = int(np.searchsorted(np.cumsum(lengths[0]), place, side="right"))
        name = table["id"][row].as_py()
        return f'subscription "{name}" has a lower bound above its upper one, or NaN'
    return None


def _matrix(column: pa.ChunkedArray, dimensions: int, fill: float) -> Floats:
    values = column.combine_chunks().flatten().to_numpy()
    if len(values) == len(column) * dimensions:
        return np.asarray(values, dtype=np.float64).reshape(len(column), dimensions)
    lengths = pc.list_value_length(column).to_numpy()
    out = np.full((len(column), dimensions), fill)
    out[np.arange(dimensions) < lengths[:, None]] = values
    return out
