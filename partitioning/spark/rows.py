"""Rows on Spark: subscriptions sorted by id, numbered, packed into chunks, and asked in passes.

A chunk is one record with its arrays as bytes: a pass then moves a few large buffers between Java and
Python instead of millions of small arrays. In a pass chunks become partial answers where they lie; partial
answers on one subject meet on one worker and become its answer, and only answers come to the driver. Where
partitions are few, partial answers meet on the driver instead, which saves half of the time of a small
pass: they are as many as partitions, and no larger than the question makes them. Passes are plain RDD
operations: planning a query takes longer than running one of these.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD, StorageLevel, TaskContext
from pyspark.ml.clustering import KMeans
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the customary name)

from edn.errors import InvalidInput
from partitioning.clustering import MOVEMENT, centres
from partitioning.kernels import Floats
from partitioning.rows import CHUNK, Chunk, Question
from partitioning.space import Space, finite_range
from partitioning.survey import Assignment

A = TypeVar("A")
Batches = Iterator[pa.RecordBatch]

#: servers that a snapshot may name
MOST_SERVERS = 10_000
#: rows of a partition, when nobody says how many partitions there shall be
_ROWS_A_PARTITION = 250_000

#: up to this many, the driver concludes by itself
_FEW_PARTITIONS = 16

_PACKED = "chunk binary, ids binary, count long, base array<double>, top array<double>, problem string"


class SparkRows:
    """A snapshot of validated columns. Its chunks stay in the cluster's memory or on its disks until
    `close`.
    """

    def __init__(self, snapshot: DataFrame, partitions: int | None = None) -> None:
        self._session: SparkSession = snapshot.sparkSession
        self._chunks: RDD[bytes] | None = None
        count, dimensions, self._servers = _extent(snapshot)
        cores = self._session.sparkContext.defaultParallelism
        self._partitions = partitions or max(cores, -(-count // _ROWS_A_PARTITION))
        ordered = (
            snapshot.withColumn("salt", F.xxhash64("id"))
            .repartitionByRange(self._partitions, "id")
            .sortWithinPartitions("id", "server")
        )
        self._packed = ordered.mapInArrow(_packer(dimensions, self._servers), _PACKED)
        # All columns are needed when it begins and when it ends; in between only the chunks.
        self._packed.persist(StorageLevel.DISK_ONLY)
        found = self._packed.agg(
            F.sum("count").alias("count"),
            F.min("problem").alias("problem"),
            *(F.min(F.col("base")[j]).alias(f"base{j}") for j in range(dimensions)),
            *(F.max(F.col("top")[j]).alias(f"top{j}") for j in range(dimensions)),
        ).collect()[0]
        if found["problem"] is not None:
            self.close()
            raise InvalidInput(found["problem"])
        self._count = int(found["count"])
        self._space = Space.spanning(
            np.array([found[f"base{j}"] for j in range(dimensions)], dtype=np.float64),
            np.array([found[f"top{j}"] for j in range(dimensions)], dtype=np.float64),
        )
        self._chunks = self._packed.select("chunk").rdd.map(lambda row: bytes(row[0]))
        self._chunks.persist(StorageLevel.MEMORY_AND_DISK)

    @property
    def count(self) -> int:
        return self._count

    @property
    def space(self) -> Space:
        return self._space

    @property
    def servers(self) -> tuple[str, ...]:
        return self._servers

    def ask(self, question: Question[A]) -> dict[int, A]:
        assert self._chunks is not None
        gathered = self._chunks.mapPartitions(_gatherer(question))
        if self._partitions <= _FEW_PARTITIONS:
            return dict(_concluder(question)(partial for some in gathered.collect() for partial in some))
        workers = self._session.sparkContext.defaultParallelism
        met = gathered.flatMap(lambda some: some).partitionBy(workers)
        return dict(met.mapPartitions(_concluder(question)).collect())

    def centroids(self, count: int, seed: int) -> Floats:
        """By MLlib. Repeatable for one seed and one way of spreading the rows, not across ways."""
        points = self._packed.select("chunk").mapInArrow(_pointer(self._space), "point array<double>")
        vectors = points.select(array_to_vector(F.col("point")).alias("features")).persist()
        # It stops when no centroid moves further than the tolerance, so all together move less than MOVEMENT.
        model = KMeans(k=count, seed=seed, tol=MOVEMENT / count, maxIter=300).fit(vectors)
        vectors.unpersist()
        found = np.array(model.clusterCenters(), dtype=np.float64)
        if len(found) < count:
            # Fewer different points than servers: what is too much stands where nobody is.
            found = np.vstack([found, np.full((count - len(found), self._space.dimensions), 2.0)])
        return found

    def assigned(self, assignment: Assignment, servers: list[str]) -> DataFrame:
        """The plan: every id with the name of its server."""
        return self._packed.select("chunk", "ids").mapInArrow(
            _assigner(assignment, servers), "id string, server string"
        )

    def close(self) -> None:
        self._packed.unpersist()
        if self._chunks is not None:
            self._chunks.unpersist()


def _extent(snapshot: DataFrame) -> tuple[int, int, tuple[str, ...]]:
    """How many rows and dimensions there are, and which servers."""
    by_server = snapshot.groupBy("server").agg(F.count("*").alias("rows"), F.max(F.size("lo")).alias("width"))
    found = by_server.limit(MOST_SERVERS).collect()
    if not found:
        raise InvalidInput("the snapshot has no subscriptions")
    if len(found) == MOST_SERVERS:
        raise InvalidInput(f'column "server" names {MOST_SERVERS} servers or more; are they servers?')
    width = max(row["width"] or 0 for row in found)
    if width < 1:
        raise InvalidInput('the snapshot has no coordinates: every "lo" is empty')
    servers = sorted(row["server"] for row in found if row["server"] is not None)
    return sum(row["rows"] for row in found), width, tuple(servers)


# What follows runs on the workers.


def _packer(dimensions: int, servers: tuple[str, ...]) -> Callable[[Batches], Batches]:
    def pack(batches: Batches) -> Batches:
        context = TaskContext.get()
        number = (context.partitionId() if context is not None else 0) << 40
        for table in _whole_ids(batches):
            packed, number = _pack(table, number, dimensions, servers)
            yield packed

    return pack


def _whole_ids(batches: Batches) -> Iterator[pa.Table]:
    """Tables of about a chunk each, cut between ids: rows of one subscription stay together."""
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
    """Where another id begins, in a column sorted by id."""
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
    """What is wrong with the values, naming a subscription; None when nothing is."""
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


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
    for batch in batches:
        for packed in batch.column("chunk"):
            yield Chunk.from_bytes(memoryview(packed.as_buffer()))


Partials = list[tuple[int, Any]]


def _gatherer(question: Question[Any]) -> Callable[[Iterable[bytes]], Iterable[Partials]]:
    """All partial answers of a partition, in one record."""

    def gather(chunks: Iterable[bytes]) -> Iterable[Partials]:
        yield list(question.gather(Chunk.from_bytes(chunk) for chunk in chunks))

    return gather


def _concluder(question: Question[Any]) -> Callable[[Iterable[tuple[int, Any]]], Iterable[tuple[int, Any]]]:
    def conclude(partials: Iterable[tuple[int, Any]]) -> Iterable[tuple[int, Any]]:
        met: dict[int, list[Any]] = {}
        for subject, partial in partials:
            met.setdefault(subject, []).append(partial)
        for subject, found in met.items():
            yield subject, question.conclude(subject, found)

    return conclude


def _pointer(space: Space) -> Callable[[Batches], Batches]:
    def points(batches: Batches) -> Batches:
        for chunk in _chunks(batches):
            flat = pa.array(centres(space, chunk).ravel())
            offsets = pa.array(np.arange(len(chunk) + 1, dtype=np.int32) * space.dimensions)
            yield pa.record_batch({"point": pa.ListArray.from_arrays(offsets, flat)})

    return points


def _assigner(assignment: Assignment, servers: list[str]) -> Callable[[Batches], Batches]:
    def assign(batches: Batches) -> Batches:
        names = pa.array(servers, pa.string())
        for batch in batches:
            for packed, ids in zip(batch.column("chunk"), batch.column("ids"), strict=True):
                parts = assignment.parts(Chunk.from_bytes(memoryview(packed.as_buffer())))
                yield pa.record_batch(
                    {
                        "id": pa.array(pickle.loads(ids.as_buffer()), pa.string()),
                        "server": names.take(pa.array(parts)),
                    }
                )

    return assign
