"""Plans offline on Spark: a snapshot of subscriptions in, a plan and a report out.

Nothing is written before everything is known to be right, and nothing that grows with the number of
subscriptions comes to the driver.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from edn.arrays import Floats, Ints
from edn.errors import Conflict, InvalidInput
from partitioning.contents import Contents, EventSample
from partitioning.methods import Wish, check_method, checked_capacity, partition
from partitioning.report import Report, draw, state
from partitioning.spark.rows import SparkRows
from partitioning.spark.snapshot import COLUMNS, EVENT_COLUMNS, MOST_EVENTS, fitted, sampled_events, validated
from partitioning.survey import Assignment, Part, Present, Relabelled, survey

#: what is being done, how much of it, of how much
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the job is to do with its input."""

    method: str
    #: how many, or their names
    servers: int | Sequence[str]
    #: where the plan goes, any path that Spark can write
    plan: str
    #: a folder for report.json and report.png
    report: Path | None = None
    capacity: int | None = None
    distances: Sequence[float] | None = None
    seed: int = 0
    partitions: int | None = None
    overwrite: bool = False


def repartition(
    snapshot: DataFrame, order: Order, events: DataFrame | None = None, progress: Progress | None = None
) -> Report:
    """Make the plan, write it and its report."""
    started = time.monotonic()
    tell = progress or (lambda label, done, total: None)
    _refuse_existing(order)
    check_method(order.method)
    if isinstance(order.servers, int) and order.servers < 1:
        raise InvalidInput(f"{order.servers} servers; at least one is needed")
    tell("read", 0, 1)
    subscriptions = validated(snapshot, COLUMNS, "the snapshot")
    points = None
    if events is not None:
        points = sampled_events(validated(events, EVENT_COLUMNS, "the sample of events"))
    rows = SparkRows(subscriptions, order.partitions)
    try:
        tell("read", 1, 1)
        names = server_names(order.servers, rows.servers)
        wish = Wish(
            method=order.method,
            servers=len(names),
            capacity=order.capacity,
            distances=order.distances,
            seed=order.seed,
        )
        capacity = checked_capacity(wish, rows.count)
        sample = even_events(rows, order.seed) if points is None else fitted(points, rows.space.dimensions)
        assignment = partition(rows, wish, sample, lambda done, total: tell("partition", done, total))
        tell("survey", 0, 2)
        contents = Contents(rows.space, EventSample.of(sample))
        parts = survey(rows, assignment, contents, len(names))
        if order.distances is None:
            labels = least_moves(parts, rows.servers, names)
            assignment, parts = Relabelled(assignment, labels), _relabelled(parts, labels)
        tell("survey", 1, 2)
        before = None
        if rows.servers:
            before = state(rows.servers, survey(rows, Present(), contents, len(rows.servers)), contents)
        tell("survey", 2, 2)
        tell("write", 0, 1)
        _write(rows, assignment, names, order)
        report = Report(
            method=order.method,
            subscriptions=rows.count,
            dimensions=rows.space.dimensions,
            capacity=capacity,
            events=len(sample),
            events_given=points is not None,
            moved=rows.count - _stay(parts, rows.servers, names),
            before=before,
            after=state(names, parts, contents),
            seconds=round(time.monotonic() - started, 3),
        )
        if order.report is not None:
            order.report.mkdir(parents=True, exist_ok=True)
            (order.report / "report.json").write_bytes(report.to_json())
            draw(report, order.report / "report.png")
        tell("write", 1, 1)
        return report
    finally:
        rows.close()


def server_names(wanted: int | Sequence[str], present: Sequence[str]) -> list[str]:
    """Names for a number of servers: those of the snapshot when they are as many, new ones when it has
    none.
    """
    if not isinstance(wanted, int):
        if len(set(wanted)) != len(wanted):
            raise InvalidInput("a server is named twice")
        if not wanted:
            raise InvalidInput("no servers; at least one is needed")
        return list(wanted)
    if len(present) == wanted:
        return list(present)
    if not present:
        return [f"server-{i:0{len(str(wanted - 1))}d}" for i in range(wanted)]
    raise InvalidInput(
        f"the snapshot names {len(present)} servers, not {wanted}: name those that are to be used, "
        "separated by commas"
    )


def even_events(rows: SparkRows, seed: int) -> Floats:
    """A sample where nothing is known of the events: even over the range of the bounds."""
    space = rows.space
    drawn: Floats = np.random.default_rng(seed).random((MOST_EVENTS, space.dimensions))
    return space.base + drawn * (space.top - space.base)


def least_moves(parts: Sequence[Part], present: Sequence[str], names: Sequence[str]) -> Ints:
    """Which part becomes which server, so that as many subscriptions as possible stay where they are."""
    # mypy has no stubs of it.
    from scipy.optimize import linear_sum_assignment

    staying = np.zeros((len(parts), len(names)), dtype=np.int64)
    for column, name in enumerate(names):
        if name in present:
            at = present.index(name)
            staying[:, column] = [part.present[at] for part in parts]
    _, columns = linear_sum_assignment(-staying)
    return np.asarray(columns, dtype=np.int64)


def _relabelled(parts: Sequence[Part], labels: Ints) -> list[Part]:
    return [parts[i] for i in np.argsort(labels)]


def _stay(parts: Sequence[Part], present: Sequence[str], names: Sequence[str]) -> int:
    return sum(
        int(part.present[present.index(name)])
        for part, name in zip(parts, names, strict=True)
        if name in present
    )


def on_this_machine(path: str) -> Path | None:
    """Where a path that Spark takes is in the file system here; None for one such as hdfs://namenode/plan."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(?://[^/]*)?(?=/)", path)
    if scheme is None:
        return Path(path)
    return Path(path[scheme.end() :]) if scheme[1] == "file" else None


def _refuse_existing(order: Order) -> None:
    """Early, so that nobody waits for a plan that cannot be written; Spark itself checks other places."""
    place = on_this_machine(order.plan)
    if not order.overwrite and place is not None and place.exists():
        raise _exists(order.plan)


def _exists(plan: str) -> Conflict:
    return Conflict(f"{plan} exists; choose another place for the plan, or overwrite it")


def _write(rows: SparkRows, assignment: Assignment, names: list[str], order: Order) -> None:
    mode = "overwrite" if order.overwrite else "errorifexists"
    try:
        rows.assigned(assignment, names).write.mode(mode).parquet(order.plan)
    except AnalysisException as error:
        if error.getCondition() == "PATH_ALREADY_EXISTS":
            raise _exists(order.plan) from None
        raise
