"""The plan of the job is the plan of the reference, subscription for subscription, however the rows are
spread.
"""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession

from edn.arrays import Floats
from partitioning.methods import PartitionOptions, partition
from partitioning.rows import LocalRows
from partitioning.spark.rows import SparkRows
from partitioning.spark.snapshot import COLUMNS, validated
from tests.spark import reference
from tests.spark.conftest import snapshot_of

NO_EVENTS: Floats = np.empty((0, 0))
#: everyday runs take one
INSTANCES = [pytest.param(seed, marks=pytest.mark.slow, id=f"seed{seed}") for seed in range(20)]


def instance(seed: int) -> tuple[list[str], Floats, Floats, int]:
    """Ids in no order, rectangles either anywhere or, so that keys and costs are often equal, on a coarse
    grid.
    """
    rng = np.random.default_rng(seed)
    parts = int(rng.integers(2, 6))
    n, d = int(rng.integers(parts, 70)), int(rng.integers(1, 4))
    if seed % 2:
        one, other = rng.random((2, n, d)) * 10
    else:
        one, other = rng.integers(0, 7, (2, n, d)).astype(np.float64)
    # Of different lengths, and beyond ASCII: their order is that of code points.
    ids = [f"{'sub' if k % 3 else 'süb'}-{k}" for k in rng.permutation(n).tolist()]
    return ids, np.minimum(one, other), np.maximum(one, other), parts


def expected(ids: list[str], lo: Floats, hi: Floats, parts: int) -> dict[str, int]:
    found = reference.plan(reference.subs(ids, lo.tolist(), hi.tolist()), parts)
    return {id: part for part, some in enumerate(found) for id in some}


@pytest.mark.parametrize("seed", INSTANCES)
def test_the_plan_on_spark_is_that_of_the_reference(spark: SparkSession, seed: int) -> None:
    ids, lo, hi, parts = instance(seed)
    want = expected(ids, lo, hi, parts)
    names = [str(part) for part in range(parts)]
    for partitions in (1, 2, 7):
        rows = SparkRows(validated(snapshot_of(spark, ids, lo, hi), COLUMNS, "the snapshot"), partitions)
        tree = partition(rows, PartitionOptions(method="rtree", servers=parts), NO_EVENTS)
        plan = rows.assigned(tree, names)
        assert plan.schema.simpleString() == "struct<id:string,server:string>"
        assert {row["id"]: int(row["server"]) for row in plan.collect()} == want
        rows.close()


@pytest.mark.slow
def test_partial_answers_that_meet_on_workers_give_the_same_plan(spark: SparkSession) -> None:
    """Beyond 16 partitions partial answers do not come to the driver."""
    ids, lo, hi, parts = instance(1)
    rows = SparkRows(validated(snapshot_of(spark, ids, lo, hi), COLUMNS, "the snapshot"), 17)
    tree = partition(rows, PartitionOptions(method="rtree", servers=parts), NO_EVENTS)
    plan = rows.assigned(tree, [str(part) for part in range(parts)])
    found = {row["id"]: int(row["server"]) for row in plan.collect()}
    rows.close()
    assert found == expected(ids, lo, hi, parts)


@pytest.mark.parametrize("seed", range(20))
def test_the_plan_in_one_process_is_that_of_the_reference(seed: int) -> None:
    ids, lo, hi, parts = instance(seed)
    order = sorted(range(len(ids)), key=lambda i: ids[i])
    rows = LocalRows(lo[order], hi[order])
    found = partition(rows, PartitionOptions(method="rtree", servers=parts), NO_EVENTS).parts(rows.whole)
    assert {ids[i]: int(part) for i, part in zip(order, found, strict=True)} == expected(ids, lo, hi, parts)
