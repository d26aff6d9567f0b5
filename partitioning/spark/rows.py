"""Rows on Spark: subscriptions sorted by id, numbered, packed into chunks, and queried in passes.

A chunk is one record with its arrays as bytes, so that a pass moves a few large buffers between Java and
Python instead of millions of small arrays. In a pass each worker turns its chunks into partial answers;
those on one subject are combined on one worker, and only answers are collected by the driver. With few
partitions the driver combines them, which halves the time of a small pass. Passes are plain RDD operations,
because planning a query takes longer than a pass.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import RDD, StorageLevel
from pyspark.ml.clustering import KMeans
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the customary name)

from edn.arrays import Floats
from edn.errors import InvalidInput
from partitioning.rows import MOVEMENT, Chunk, Question
from partitioning.space import Space
from partitioning.spark.packing import PACKED, Batches, packer
from partitioning.survey import Assignment

A = TypeVar("A")

#: limit of servers in a snapshot
MOST_SERVERS = 10_000
#: default number of rows per partition
_PARTITION_ROWS = 250_000
#: limit of partitions for which the driver combines partial answers
_FEW_PARTITIONS = 16


class SparkRows:
    """A snapshot of validated columns. Its chunks stay in the cluster until `close`."""

    def __init__(self, snapshot: DataFrame, partitions: int | None = None) -> None:
        self._session: SparkSession = snapshot.sparkSession
        self._chunks: RDD[bytes] | None = None
        count, dimensions, self.servers = _extent(snapshot)
        cores = self._session.sparkContext.defaultParallelism
        self._partitions = partitions or max(cores, -(-count // _PARTITION_ROWS))
        ordered = (
            snapshot.withColumn("salt", F.xxhash64("id"))
            .repartitionByRange(self._partitions, "id")
            .sortWithinPartitions("id", "server")
        )
        self._packed = ordered.mapInArrow(packer(dimensions, self.servers), PACKED)
        # All columns are needed only at the beginning and the end; passes use only the chunks.
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
        self.count = int(found["count"])
        self.space = Space.spanning(
            np.array([found[f"base{j}"] for j in range(dimensions)], dtype=np.float64),
            np.array([found[f"top{j}"] for j in range(dimensions)], dtype=np.float64),
        )
        self._chunks = self._packed.select("chunk").rdd.map(lambda row: bytes(row[0]))
        self._chunks.persist(StorageLevel.MEMORY_AND_DISK)

    def ask(self, question: Question[A]) -> dict[int, A]:
        assert self._chunks is not None
        gathered = self._chunks.mapPartitions(_gatherer(question))
        if self._partitions <= _FEW_PARTITIONS:
            return dict(_concluder(question)(partial for some in gathered.collect() for partial in some))
        workers = self._session.sparkContext.defaultParallelism
        met = gathered.flatMap(lambda some: some).partitionBy(workers)
        return dict(met.mapPartitions(_concluder(question)).collect())

    def centroids(self, count: int, seed: int) -> Floats:
        """Return centroids by MLlib. Repeatable for one seed and one number of partitions."""
        if count == 1:
            # MLlib needs at least two; a single centroid may be anywhere.
            return np.full((1, self.space.dimensions), 0.5)
        points = self._packed.select("chunk").mapInArrow(_pointer(self.space), "point array<double>")
        vectors = points.select(array_to_vector(F.col("point")).alias("features")).persist()
        # It stops when no centroid moves further than tol, so all together move less than MOVEMENT.
        model = KMeans(k=count, seed=seed, tol=MOVEMENT / count, maxIter=300).fit(vectors)
        vectors.unpersist()
        found = np.array(model.clusterCenters(), dtype=np.float64)
        if len(found) < count:
            # Fewer distinct points than servers: put the other centroids outside the range.
            found = np.vstack([found, np.full((count - len(found), self.space.dimensions), 2.0)])
        return found

    def assigned(self, assignment: Assignment, servers: list[str]) -> DataFrame:
        """Return the plan: every id with the name of its server."""
        return self._packed.select("chunk", "ids").mapInArrow(
            _assigner(assignment, servers), "id string, server string"
        )

    def close(self) -> None:
        self._packed.unpersist()
        if self._chunks is not None:
            self._chunks.unpersist()


def _extent(snapshot: DataFrame) -> tuple[int, int, tuple[str, ...]]:
    by_server = snapshot.groupBy("server").agg(F.count("*").alias("rows"), F.max(F.size("lo")).alias("width"))
    found = by_server.limit(MOST_SERVERS).collect()
    if not found:
        raise InvalidInput("the snapshot has no subscriptions")
    if len(found) == MOST_SERVERS:
        raise InvalidInput(f'column "server" must have less than {MOST_SERVERS} different values')
    width = max(row["width"] or 0 for row in found)
    if width < 1:
        raise InvalidInput('the snapshot has no coordinates: every "lo" is empty')
    servers = sorted(row["server"] for row in found if row["server"] is not None)
    return sum(row["rows"] for row in found), width, tuple(servers)


# The following functions run on the workers.


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
    for batch in batches:
        for packed in batch.column("chunk"):
            yield Chunk.from_bytes(memoryview(packed.as_buffer()))


Partials = list[tuple[int, Any]]


def _gatherer(question: Question[Any]) -> Callable[[Iterable[bytes]], Iterable[Partials]]:
    """Return a function that yields all partial answers of a partition in one record."""

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
            flat = pa.array(space.centres(chunk.lo, chunk.hi).ravel())
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
