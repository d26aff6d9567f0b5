"""Subscriptions as they are stored: where they are read from, and what they must look like.

A snapshot has a row for each rectangle of each subscription:

| column | type | meaning |
|---|---|---|
| `id` | string | the subscription; several rows of one id are one subscription with several rectangles |
| `server` | string | the server that hosts it; null for none |
| `lo`, `hi` | array<double> | bounds; missing is -inf, shorter arrays are unconstrained in what they lack |

Other columns are ignored. A database without arrays may hold `lo` and `hi` as JSON in strings, with
Infinity and -Infinity for what JSON lacks.
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
#: events that are looked at; more would cost and not tell more
MOST_EVENTS = 4096


def read_parquet(session: SparkSession, path: str) -> DataFrame:
    try:
        return session.read.parquet(path)
    except AnalysisException as error:
        if error.getCondition() in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
            raise NotFound(f"no Parquet data at {path}") from None
        raise
    except Py4JJavaError as error:
        raise InvalidInput(f"{path} cannot be read as Parquet: {reason(error)}") from None


def read_jdbc(session: SparkSession, url: str, table: str, properties: Mapping[str, str]) -> DataFrame:
    """A table or a query in parentheses; columns may be called in capitals, as some databases do."""
    try:
        frame = session.read.jdbc(url, table, properties=dict(properties))
    except Py4JJavaError as error:
        raise InvalidInput(
            f"{table} cannot be read from {url.partition('?')[0]}: {reason(error)} "
            "(--jdbc-jar and --jdbc-driver name the driver)"
        ) from None
    frame = frame.toDF(*(name.lower() for name in frame.columns))
    for name in ("lo", "hi"):
        if name in frame.columns and frame.schema[name].dataType == T.StringType():
            frame = frame.withColumn(name, F.from_json(F.col(name), _BOUNDS))
    return frame


def validated(frame: DataFrame, columns: Mapping[str, T.DataType], what: str) -> DataFrame:
    """Only those columns; InvalidInput names the first that is missing or of another type."""
    for name, kind in columns.items():
        if name not in frame.columns:
            there = ", ".join(frame.columns) or "none"
            raise InvalidInput(f'{what} lacks the column "{name}" ({kind.simpleString()}); it has {there}')
        found = frame.schema[name].dataType
        if found.simpleString() != kind.simpleString():
            raise InvalidInput(
                f'column "{name}" of {what} is {found.simpleString()}, not {kind.simpleString()}'
            )
    return frame.select(*columns)


def sampled_events(frame: DataFrame, count: int = MOST_EVENTS) -> list[list[float]]:
    """The same events of the same data, however it is spread: those whose hash is least."""
    chosen = frame.orderBy(F.xxhash64("point"), "point").limit(count)
    points = [row["point"] for row in chosen.collect()]
    if not points:
        raise InvalidInput("the sample of events is empty")
    for point in points:
        if point is None or any(x is None or x != x for x in point):
            raise InvalidInput("an event of the sample has a coordinate that is null or NaN; missing is -inf")
    return points


def fitted(points: list[list[float]], dimensions: int) -> Floats:
    """Events as a matrix (m, d): coordinates beyond are dropped, those that lack are missing."""
    import numpy as np

    out = np.full((len(points), dimensions), -np.inf)
    for i, point in enumerate(points):
        out[i, : len(point)] = point[:dimensions]
    return out
