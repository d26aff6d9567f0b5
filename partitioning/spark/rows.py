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
import pyarrow as pa
from pyspark import RDD, StorageLevel
from pyspark.ml.clustering import KMeans
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the customary name)

from edn.arrays import Floats
from edn.errors import InvalidInput
from partitioning.centroids import MOVEMENT
from partitioning.rows import Chunk, Question
from partitioning.space import Space
from partitioning.spark.packing import PACKED, Batches, packer
from partitioning.survey import Assignment

A = TypeVar("A")

#: servers that a snapshot may name
MOST_SERVERS = 10_000
#: rows of a partition, when nobody says how many partitions there shall be
_ROWS_A_PARTITION = 250_000

#: up to this many, the driver concludes by itself
_FEW_PARTITIONS = 16


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
        self._packed = ordered.mapInArrow(packer(dimensions, self._servers), PACKED)
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
        if count == 1:
            # MLlib looks for two or more; of one, any place will do.
            return np.full((1, self._space.dimensions), 0.5)
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
