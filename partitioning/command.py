"""The command `edn repartition plan`, also `python -m partitioning.job`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.errors import EdnError, InvalidInput
from edn.formats.counts import counted
from edn.tools.console import USAGE, fail, show_json, show_table
from partitioning.methods import METHODS, check_method

if TYPE_CHECKING:
    from partitioning.planner import Progress
    from partitioning.report import Report

#: suffix of the report beside a plan
REPORT = ".report.json"


def plan(
    servers: Annotated[
        str, typer.Option(help="Number of servers, or their names separated by commas.", show_default=False)
    ],
    out: Annotated[str, typer.Option("--plan", help="Path of the plan (Parquet).", show_default=False)],
    snapshot: Annotated[str | None, typer.Option(help="Path of the subscriptions (Parquet).")] = None,
    method: Annotated[str, typer.Option(help=f"Method: {', '.join(METHODS)}.")] = "rtree",
    events: Annotated[
        str | None,
        typer.Option(help="Sample of events (Parquet with a column `point`); random by default."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for report.json and report.png.")] = None,
    capacity: Annotated[int | None, typer.Option(help="Limit of subscriptions per server.")] = None,
    distances: Annotated[
        str | None, typer.Option(help="Network distances of the servers, separated by commas.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the random numbers.")] = 0,
    master: Annotated[
        str | None, typer.Option(envvar="SPARK_MASTER", help="Spark master; this machine by default.")
    ] = None,
    driver_memory: Annotated[str | None, typer.Option(help="Memory of the Spark driver, such as 2g.")] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Number of Spark partitions.")] = None,
    jdbc_url: Annotated[str | None, typer.Option(help="Read the subscriptions from a database.")] = None,
    jdbc_table: Annotated[str, typer.Option(help="Table, or query in parentheses.")] = "subscriptions",
    jdbc_driver: Annotated[str | None, typer.Option(help="Java class of the JDBC driver.")] = None,
    jdbc_jar: Annotated[str | None, typer.Option(help="Jar file of the JDBC driver.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing plan.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Plan the servers of all subscriptions from a snapshot (needs Java 17)."""
    if (snapshot is None) == (jdbc_url is None):
        fail("use either --snapshot or --jdbc-url", USAGE)
    source = str(snapshot) if jdbc_url is None else Database(jdbc_url, jdbc_table, jdbc_driver, jdbc_jar)
    try:
        wanted = {
            "servers": _servers(servers),
            "distances": None if distances is None else [_number(one) for one in distances.split(",")],
        }
    except InvalidInput as error:
        fail(error.detail, USAGE)
    done = make(
        source,
        events=events,
        master=master,
        driver_memory=driver_memory,
        plan=out,
        method=method,
        report=report,
        capacity=capacity,
        seed=seed,
        partitions=partitions,
        overwrite=overwrite,
        **wanted,
    )
    if json:
        show_json(done)
    else:
        show(done)


def main() -> None:
    typer.run(plan)


@dataclass(frozen=True, slots=True)
class Database:
    url: str
    table: str
    driver: str | None
    jar: str | None


def make(
    source: str | Database,
    *,
    events: str | None = None,
    master: str | None = None,
    driver_memory: str | None = None,
    **wanted: Any,
) -> Report:
    """Start Spark, make the plan, and write its report beside it; `wanted` are fields of `PlanOptions`.

    An error exits the command.
    """
    try:
        from partitioning import planner
        from partitioning.spark import session
        from partitioning.spark.snapshot import read_jdbc, read_parquet
    except ModuleNotFoundError as error:
        fail(f'{error.name} is not installed; run `pip install "edn[spark]"`', USAGE)
    try:
        options = planner.PlanOptions(**wanted)
        check_method(options.method)  # before the slow start of Spark
        # spark-submit has chosen the master.
        submitted = "SPARK_ENV_LOADED" in os.environ
        jars = source.jar if isinstance(source, Database) else None
        spark = session.new_session(
            master=master or (None if submitted else "local[*]"), driver_memory=driver_memory, jars=jars
        )
        if isinstance(source, Database):
            properties = {} if source.driver is None else {"driver": source.driver}
            subscriptions = read_jdbc(spark, source.url, source.table, properties)
        else:
            subscriptions = read_parquet(spark, source)
        sample = None if events is None else read_parquet(spark, events)
        with _progress() as progress:
            done = planner.repartition(subscriptions, options, sample, progress)
    except EdnError as error:
        fail(error.detail, USAGE)
    # `edn repartition apply` reads the report of a local plan.
    place = planner.on_this_machine(options.plan)
    if place is not None and place.exists():
        place.with_name(place.name + REPORT).write_bytes(done.to_json())
    return done


def _servers(text: str) -> int | list[str]:
    try:
        return int(text)
    except ValueError:
        return [name.strip() for name in text.split(",") if name.strip()]


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise InvalidInput(f'distance must be a number, got "{text}"') from None
    if not 0 < number < float("inf"):
        raise InvalidInput(f"distance must be above 0 and finite, got {text}")
    return number


@contextmanager
def _progress() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    with Bars(console=Console(stderr=True), transient=False) as bars:
        tasks: dict[str, TaskID] = {}

        def show(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label, total=total)
            bars.update(tasks[label], completed=done, total=total)

        yield show


def show(report: Report) -> None:
    from rich.table import Table

    heading = f"{report.method}: {counted(report.subscriptions, 'subscription')}, {report.moved:,} would move"
    table = Table("server", title=heading)
    for column in ("subscriptions", "volume", "hit ratio", "before: subscriptions", "hit ratio"):
        table.add_column(column, justify="right")
    before = {one.server: one for one in report.before.servers} if report.before is not None else {}
    for one in report.after.servers:
        old = before.get(one.server)
        table.add_row(
            one.server,
            f"{one.subscriptions:,}",
            f"{one.volume:.3f}",
            f"{one.hit_ratio:.3f}",
            "" if old is None else f"{old.subscriptions:,}",
            "" if old is None else f"{old.hit_ratio:.3f}",
        )
    table.add_row(
        "all",
        f"{report.subscriptions:,}",
        f"{report.after.volume:.3f}",
        f"{report.after.hit_ratio:.3f}",
        "",
        "" if report.before is None else f"{report.before.hit_ratio:.3f}",
    )
    show_table(table)
