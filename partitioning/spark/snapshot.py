"""Reads and validates snapshots of subscriptions and samples of events.

A snapshot has one row per rectangle of a subscription:

| column | type | meaning |
|---|---|---|
| `id` | string | the subscription; it may have several rows |
| `server` | string | its server; null for none |
| `lo`, `hi` | array<double> | bounds; missing is -inf, shorter arrays are unconstrained in other columns |

Other columns are ignored. A database without arrays may store `lo` and `hi` as JSON strings, with Infinity
and -Infinity.
"""

from __future__ import annotations

from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the customary name)
from pyspark.sql import types as T  # noqa: N812 (the customary name)

from edn.arrays import Floats
from edn.errors import InvalidInput, NotFound
from partitioning.spark.session import reason

_BOUNDS = T.ArrayType(T.DoubleType())
COLUMNS: Mapping[str, T.DataType] = {
    "id": T.StringType(),
    "server": T.StringType(),
    "lo": _BOUNDS,
    "hi": _BOUNDS,
}
EVENT_COLUMNS: Mapping[str, T.DataType] = {"point": _BOUNDS}
#: size of the sample of events
MOST_EVENTS = 4096


def read_parquet(session: SparkSession, path: str) -> DataFrame:
    try:
        return session.read.parquet(path)
    except AnalysisException as error:
        if error.getCondition() in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
            raise NotFound(f"{path} has no Parquet data") from None
        raise
    except Py4JJavaError as error:
        raise InvalidInput(f"{path} cannot be read as Parquet: {reason(error)}") from None


def read_jdbc(session: SparkSession, url: str, table: str, properties: Mapping[str, str]) -> DataFrame:
    """Read a table, or a query in parentheses; names of columns may be in upper case."""
    try:
        frame = session.read.jdbc(url, table, properties=dict(properties))
    except Py4JJavaError as error:
        raise InvalidInput(
            f"{table} cannot be read from {url.partition('?')[0]}: {reason(error)} "
            "(set the driver with --jdbc-jar and --jdbc-driver)"
        ) from None
    frame = frame.toDF(*(name.lower() for name in frame.columns))
    for name in ("lo", "hi"):
        if name in frame.columns and frame.schema[name].dataType == T.StringType():
            frame = frame.withColumn(name, F.from_json(F.col(name), _BOUNDS))
    return frame


def validated(frame: DataFrame, columns: Mapping[str, T.DataType], what: str) -> DataFrame:
    """Return only these columns; raises `InvalidInput` if one is missing or has another type."""
    for name, kind in columns.items():
        if name not in frame.columns:
            there = ", ".join(frame.columns) or "none"
            raise InvalidInput(f'{what} must have the column "{name}" ({kind.simpleString()}), got {there}')
        found = frame.schema[name].dataType
        if found.simpleString() != kind.simpleString():
            raise InvalidInput(
                f'column "{name}" of {what} must be {kind.simpleString()}, got {found.simpleString()}'
            )
    return frame.select(*columns)


def sampled_events(frame: DataFrame, count: int = MOST_EVENTS) -> list[list[float]]:
    """Return a sample: the events with the smallest hashes. Spark's partitions do not change the sample."""
    chosen = frame.orderBy(F.xxhash64("point"), "point").limit(count)
    points = [row["point"] for row in chosen.collect()]
    if not points:
        raise InvalidInput("the sample of events must not be empty")
    for point in points:
        if point is None or any(x is None or x != x for x in point):
            raise InvalidInput("coordinates of sampled events must not be null or NaN; missing is -inf")
    return points


def fitted(points: list[list[float]], dimensions: int) -> Floats:
    """Return events as a matrix (m, d): further coordinates are dropped, other ones are missing."""
    import numpy as np

    out = np.full((len(points), dimensions), -np.inf)
    for i, point in enumerate(points):
        out[i, : len(point)] = point[:dimensions]
    return out
