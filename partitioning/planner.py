"""Makes a plan and a report from a snapshot of subscriptions, on Spark.

Nothing is written before all input is checked. No data that grows with the number of subscriptions is
collected by the driver.
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
from partitioning.methods import PartitionOptions, check_method, checked_capacity, partition
from partitioning.report import Report, draw, state
from partitioning.spark.rows import SparkRows
from partitioning.spark.snapshot import COLUMNS, EVENT_COLUMNS, MOST_EVENTS, fitted, sampled_events, validated
from partitioning.survey import Assignment, Part, Present, Relabelled, survey

#: (step, done, total)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    method: str
    #: number or names
    servers: int | Sequence[str]
    #: path of the plan, on any file system of Spark
    plan: str
    #: folder for report.json and report.png
    report: Path | None = None
    capacity: int | None = None
    distances: Sequence[float] | None = None
    seed: int = 0
    partitions: int | None = None
    overwrite: bool = False


def repartition(
    snapshot: DataFrame,
    options: PlanOptions,
    events: DataFrame | None = None,
    progress: Progress | None = None,
) -> Report:
    started = time.monotonic()
    report_progress = progress or (lambda label, done, total: None)
    _refuse_existing(options)
    check_method(options.method)
    if isinstance(options.servers, int) and options.servers < 1:
        raise InvalidInput(f"servers must be at least 1, got {options.servers}")
    report_progress("read", 0, 1)
    subscriptions = validated(snapshot, COLUMNS, "the snapshot")
    points = None
    if events is not None:
        points = sampled_events(validated(events, EVENT_COLUMNS, "the sample of events"))
    rows = SparkRows(subscriptions, options.partitions)
    try:
        report_progress("read", 1, 1)
        names = server_names(options.servers, rows.servers)
        partitioning = PartitionOptions(
            method=options.method,
            servers=len(names),
            capacity=options.capacity,
            distances=options.distances,
            seed=options.seed,
        )
        capacity = checked_capacity(partitioning, rows.count)
        sample = even_events(rows, options.seed) if points is None else fitted(points, rows.space.dimensions)
        assignment = partition(
            rows, partitioning, sample, lambda done, total: report_progress("partition", done, total)
        )
        report_progress("survey", 0, 2)
        contents = Contents(rows.space, EventSample.of(sample))
        parts = survey(rows, assignment, contents, len(names))
        staying = _staying(parts, rows.servers, names)
        if options.distances is None:
            labels = _least_moves(staying)
            assignment, parts = Relabelled(assignment, labels), [parts[i] for i in np.argsort(labels)]
            staying = staying[np.argsort(labels)]
        report_progress("survey", 1, 2)
        before = None
        if rows.servers:
            before = state(rows.servers, survey(rows, Present(), contents, len(rows.servers)), contents)
        report_progress("survey", 2, 2)
        report_progress("write", 0, 1)
        _write(rows, assignment, names, options)
        report = Report(
            method=options.method,
            subscriptions=rows.count,
            dimensions=rows.space.dimensions,
            capacity=capacity,
            events=len(sample),
            events_given=points is not None,
            moved=rows.count - int(np.trace(staying)),
            before=before,
            after=state(names, parts, contents),
            seconds=round(time.monotonic() - started, 3),
        )
        if options.report is not None:
            options.report.mkdir(parents=True, exist_ok=True)
            (options.report / "report.json").write_bytes(report.to_json())
            draw(report, options.report / "report.png")
        report_progress("write", 1, 1)
        return report
    finally:
        rows.close()


def server_names(wanted: int | Sequence[str], present: Sequence[str]) -> list[str]:
    """Return the names of the servers: for a number, those of the snapshot, or new ones if it has none."""
    if not isinstance(wanted, int):
        if len(set(wanted)) != len(wanted):
            raise InvalidInput(f"server names must be unique, got {', '.join(wanted)}")
        if not wanted:
            raise InvalidInput("servers must be at least one name, got none")
        return list(wanted)
    if len(present) == wanted:
        return list(present)
    if not present:
        return [f"server-{i:0{len(str(wanted - 1))}d}" for i in range(wanted)]
    raise InvalidInput(
        f"servers must be names, because the snapshot has {len(present)} servers, got {wanted}; "
        "separate the names by commas"
    )


def even_events(rows: SparkRows, seed: int) -> Floats:
    """Return random events, evenly distributed over the range of the bounds."""
    space = rows.space
    drawn: Floats = np.random.default_rng(seed).random((MOST_EVENTS, space.dimensions))
    return space.base + drawn * (space.top - space.base)


def _staying(parts: Sequence[Part], present: Sequence[str], names: Sequence[str]) -> Ints:
    """Return (parts, names): the subscriptions that stay if a part becomes a server."""
    staying = np.zeros((len(parts), len(names)), dtype=np.int64)
    for column, name in enumerate(names):
        if name in present:
            at = present.index(name)
            staying[:, column] = [part.present[at] for part in parts]
    return staying


def _least_moves(staying: Ints) -> Ints:
    """Return the server of each part, such that the fewest subscriptions move."""
    # mypy has no stubs of it.
    from scipy.optimize import linear_sum_assignment

    return np.asarray(linear_sum_assignment(-staying)[1], dtype=np.int64)


def on_this_machine(path: str) -> Path | None:
    """Return a path of Spark as a local path; None for a remote one such as hdfs://namenode/plan."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(?://[^/]*)?(?=/)", path)
    if scheme is None:
        return Path(path)
    return Path(path[scheme.end() :]) if scheme[1] == "file" else None


def _refuse_existing(options: PlanOptions) -> None:
    """Check early whether a local plan exists; Spark checks remote paths when it writes."""
    place = on_this_machine(options.plan)
    if not options.overwrite and place is not None and place.exists():
        raise _exists(options.plan)


def _exists(plan: str) -> Conflict:
    return Conflict(f"{plan} exists already; choose another path, or use --overwrite")


def _write(rows: SparkRows, assignment: Assignment, names: list[str], options: PlanOptions) -> None:
    mode = "overwrite" if options.overwrite else "errorifexists"
    try:
        rows.assigned(assignment, names).write.mode(mode).parquet(options.plan)
    except AnalysisException as error:
        if error.getCondition() == "PATH_ALREADY_EXISTS":
            raise _exists(options.plan) from None
        raise
