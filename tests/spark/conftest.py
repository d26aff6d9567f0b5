"""One Spark session for the whole run: starting one costs more than all that these tests do with it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("pyspark", reason="the job needs the extra `spark`")

from pyspark.sql import DataFrame, SparkSession

from partitioning.spark.session import java_missing, new_session
from partitioning.spark.snapshot import COLUMNS


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    problem = java_missing()
    if problem is not None:
        pytest.skip(problem)
    session = new_session(master="local[2]", driver_memory="1g")
    yield session
    with warnings.catch_warnings():
        # Sockets of the gateway are closed by the collector, whenever it comes.
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()


def snapshot_of(
    session: SparkSession,
    ids: Sequence[str],
    lo: npt.NDArray[np.float64],
    hi: npt.NDArray[np.float64],
    servers: Sequence[str | None] | None = None,
) -> DataFrame:
    names = servers if servers is not None else [None] * len(ids)
    rows: list[Any] = list(zip(ids, names, lo.tolist(), hi.tolist(), strict=True))
    schema = ", ".join(f"{name} {kind.simpleString()}" for name, kind in COLUMNS.items())
    return session.createDataFrame(rows, schema)
