"""The job from end to end: what it reads, writes, refuses, and brings to the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
import typer
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 (the customary name)
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from typer.testing import CliRunner

from edn.errors import Conflict, EdnError, InvalidInput, NotFound
from edn.summary import Maximal, Summary, new_router
from partitioning.command import plan
from partitioning.planner import PlanOptions, on_this_machine, repartition, server_names
from partitioning.report import Report
from partitioning.spark.session import new_session
from partitioning.spark.snapshot import read_jdbc, read_parquet
from tests.spark.conftest import snapshot_of

INF = float("inf")


def order(folder: Path, **changes: Any) -> PlanOptions:
    given: dict[str, Any] = {"method": "rtree", "servers": 3, "plan": str(folder / "plan")}
    return PlanOptions(**(given | {"report": folder / "report", "partitions": 2} | changes))


def random_snapshot(spark: SparkSession, n: int, seed: int = 0) -> DataFrame:
    rng = np.random.default_rng(seed)
    one, other = rng.random((2, n, 2)) * 10
    servers = [f"s{k}" for k in rng.integers(0, 3, n)]
    ids = [f"id{k}" for k in range(n)]
    return snapshot_of(spark, ids, np.minimum(one, other), np.maximum(one, other), servers)


@contextmanager
def counting_rows_to_the_driver() -> Iterator[list[int]]:
    """How many records each action brought back."""
    brought: list[int] = []
    collect_frame, collect_rdd = ClassicDataFrame.collect, RDD.collect

    def frame(self: Any) -> Any:
        rows = collect_frame(self)
        brought.append(len(rows))
        return rows

    def rdd(self: Any) -> Any:
        rows = collect_rdd(self)
        brought.append(len(rows))
        return rows

    with (
        mock.patch.object(ClassicDataFrame, "collect", frame),
        mock.patch.object(RDD, "collect", rdd),
    ):
        yield brought


@pytest.mark.parametrize(
    "method",
    [
        "rtree",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("kmeans", "traffic", "random", "mincut")),
    ],
)
def test_every_method_plans_each_subscription_once_within_the_capacity(
    spark: SparkSession, tmp_path: Path, method: str
) -> None:
    report = repartition(random_snapshot(spark, 300), order(tmp_path, method=method, capacity=120))
    written = spark.read.parquet(str(tmp_path / "plan"))
    assert written.schema == T.StructType(
        [T.StructField("id", T.StringType()), T.StructField("server", T.StringType())]
    )
    rows = written.collect()
    assert sorted(row["id"] for row in rows) == sorted(f"id{k}" for k in range(300))
    loads = {one.server: one.subscriptions for one in report.after.servers}
    for server, load in loads.items():
        assert sum(row["server"] == server for row in rows) == load
    assert max(loads.values()) <= 120
    if method in ("rtree", "traffic", "random"):
        assert set(loads.values()) == {100}
    told = msgspec.json.decode((tmp_path / "report" / "report.json").read_bytes(), type=Report)
    assert told == report
    assert (tmp_path / "report" / "report.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(("count", "servers"), [(1, 1), (10, 1), (10, 5)])
def test_kmeans_plans_what_is_all_alike(
    spark: SparkSession, tmp_path: Path, count: int, servers: int
) -> None:
    lo = np.ones((count, 2))
    snapshot = snapshot_of(spark, [f"id{k}" for k in range(count)], lo, lo + 1)
    report = repartition(snapshot, order(tmp_path, method="kmeans", servers=servers))
    loads = [one.subscriptions for one in report.after.servers]
    assert (len(loads), sum(loads)) == (servers, count)
    assert max(loads) <= report.capacity


def test_infinite_bounds_missing_attributes_and_several_rectangles_are_planned(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: list[Any] = [
        ("a", "x", [-INF, 1.0], [INF, 2.0]),
        ("b", "x", [-INF, -INF], [-INF, INF]),
        ("c", "x", [0.0], [1.0]),
        # Two rectangles of one subscription: together they reach from 0 to 9.
        ("d", "x", [0.0, 5.0], [1.0, 5.0]),
        ("d", "x", [8.0, 5.0], [9.0, 5.0]),
        ("e", None, [8.5, 5.0], [8.6, 5.0]),
    ]
    frame = spark.createDataFrame(rows, "id string, server string, lo array<double>, hi array<double>")
    report = repartition(frame, order(tmp_path, servers=["x", "y"]))
    assert report.subscriptions == 5
    assert sorted(one.subscriptions for one in report.after.servers) == [2, 3]
    assert report.before is not None
    assert [one.subscriptions for one in report.before.servers] == [4]
    assert spark.read.parquet(str(tmp_path / "plan")).count() == 5


def test_a_plan_that_is_carried_out_moves_nothing_the_next_time(spark: SparkSession, tmp_path: Path) -> None:
    snapshot = random_snapshot(spark, 90)
    first = repartition(snapshot, order(tmp_path))
    assert 0 < first.moved < 90
    planned = spark.read.parquet(str(tmp_path / "plan"))
    moved = snapshot.drop("server").join(planned, "id")
    assert repartition(moved, order(tmp_path, plan=str(tmp_path / "again"))).moved == 0


def test_nothing_that_grows_with_the_subscriptions_comes_to_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    from partitioning.rows import CHUNK

    n = 2 * CHUNK + 1
    frame = spark.range(n).selectExpr(
        "cast(id as string) as id",
        "cast(null as string) as server",
        "array(cast(id % 977 as double), cast(id % 31 as double)) as lo",
        "array(cast(id % 977 + 5 as double), cast(id % 31 + 3 as double)) as hi",
    )
    # The other ways by which rows could come are not used at all.
    by_iterator = mock.patch.object(RDD, "toLocalIterator", side_effect=AssertionError)
    by_pandas = mock.patch.object(ClassicDataFrame, "toPandas", side_effect=AssertionError)
    with counting_rows_to_the_driver() as brought, by_iterator, by_pandas:
        report = repartition(frame, order(tmp_path))
    assert report.subscriptions == n > 10_000
    assert brought
    assert max(brought) <= 10_000


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id string, server string, lo array<double>", 'must have the column "hi" (array<double>)'),
        ("id string, lo array<double>, hi array<double>", 'must have the column "server" (string)'),
        (
            "id bigint, server string, lo array<double>, hi array<double>",
            'column "id" of the snapshot must be string, got bigint',
        ),
        (
            "id string, server string, lo array<float>, hi array<double>",
            "must be array<double>, got array<float>",
        ),
    ],
)
def test_a_snapshot_with_wrong_columns_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, schema: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        repartition(spark.createDataFrame([], schema), order(tmp_path))
    assert message in refused.value.detail
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no subscriptions"),
        ([("a", "s", [2.0], [1.0])], 'subscription "a" has a lower bound above its upper one, or NaN'),
        ([("a", "s", [float("nan")], [1.0])], 'subscription "a" has a lower bound above'),
        ([("a", "s", [0.0], [1.0, 2.0])], 'subscription "a" has "lo" and "hi" of different lengths'),
        ([("a", "s", None, [1.0]), ("b", "s", [1.0], [1.0])], 'subscription "a" has no "lo"'),
        ([("a", "s", [0.0, None], [1.0, 2.0])], 'column "lo" of the snapshot has a null coordinate'),
        ([(None, "s", [0.0], [1.0])], 'column "id" of the snapshot has a null'),
        (
            [("a", "s", [0.0], [1.0]), ("a", "t", [0.0], [1.0])],
            'subscription "a" has rectangles on two servers',
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(
    spark: SparkSession, tmp_path: Path, rows: list[Any], message: str
) -> None:
    frame = spark.createDataFrame(rows, "id string, server string, lo array<double>, hi array<double>")
    with pytest.raises(InvalidInput) as refused:
        repartition(frame, order(tmp_path, servers=["s"]))
    assert message in refused.value.detail
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"servers": 0}, "servers must be at least 1, got 0"),
        ({"servers": []}, "servers must be at least one name, got none"),
        ({"servers": ["a", "a"]}, "server names must be unique, got a, a"),
        ({"servers": [f"n{k}" for k in range(21)]}, "at least as many as servers (21), got 20"),
        ({"capacity": 6}, "capacity must be at least 7 for 20 subscriptions on 3 servers, got 6"),
        ({"method": "best"}, 'method must be one of rtree, traffic, kmeans, random, mincut, got "best"'),
        ({"distances": [1.0]}, "distances must be as many as servers (3), got 1"),
    ],
)
def test_orders_that_cannot_be_fulfilled_are_refused_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(EdnError) as refused:
        repartition(random_snapshot(spark, 20), order(tmp_path, **changes))
    assert message in refused.value.detail
    assert list(tmp_path.iterdir()) == []


def test_a_plan_that_exists_is_not_overwritten_unasked(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    for place in (str(tmp_path / "plan"), (tmp_path / "plan").as_uri(), f"file:{tmp_path / 'plan'}"):
        with pytest.raises(Conflict, match="exists"):
            repartition(random_snapshot(spark, 20), order(tmp_path, plan=place))
    repartition(random_snapshot(spark, 20), order(tmp_path, overwrite=True))
    assert spark.read.parquet(str(tmp_path / "plan")).count() == 20


def test_a_snapshot_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        read_parquet(spark, str(tmp_path / "nowhere"))


def test_what_spark_cannot_read_is_told_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("id,server\n" * 50)
    with pytest.raises(InvalidInput) as refused:
        read_parquet(spark, str(tmp_path / "text"))
    assert refused.value.detail.startswith(f"{tmp_path / 'text'} cannot be read as Parquet: ")
    assert "\n" not in refused.value.detail
    with pytest.raises(InvalidInput) as refused:
        read_jdbc(spark, "jdbc:nothing://127.0.0.1/base?password=secret", "subscriptions", {})
    assert (
        "from jdbc:nothing://127.0.0.1/base: No suitable driver (set the driver with --jdbc-jar"
        in refused.value.detail
    )


@pytest.mark.parametrize(
    ("path", "here"),
    [
        ("plan", "plan"),
        ("/tmp/plan", "/tmp/plan"),
        ("file:///tmp/plan", "/tmp/plan"),
        ("file:/tmp/plan", "/tmp/plan"),
        ("hdfs://namenode:8020/plan", None),
        ("hdfs:/plan", None),
        ("s3a://bucket/plan", None),
    ],
)
def test_paths_elsewhere_are_told_from_those_on_this_machine(path: str, here: str | None) -> None:
    assert on_this_machine(path) == (None if here is None else Path(here))


def test_a_database_table_is_read_whose_bounds_are_json(spark: SparkSession, tmp_path: Path) -> None:
    # Derby comes with Spark, and knows no arrays.
    url = f"jdbc:derby:{tmp_path / 'base'};create=true"
    rows = [("a", "s", "[-Infinity, 0.5]", "[3.0, Infinity]"), ("b", "s", "[1.0, 2.0]", "[1.0, 2.0]")]
    properties = {"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    spark.createDataFrame(rows, "id string, server string, lo string, hi string").write.jdbc(
        url, "subscriptions", properties=properties
    )
    frame = read_jdbc(spark, url, "subscriptions", properties)
    assert frame.schema["lo"].dataType == T.ArrayType(T.DoubleType())
    assert [row["lo"] for row in frame.orderBy("id").collect()] == [[-INF, 0.5], [1.0, 2.0]]


def test_events_of_a_sample_decide_where_the_traffic_is(spark: SparkSession, tmp_path: Path) -> None:
    """All events fall into one corner; subscriptions there belong on one server of two, and volume cannot
    know.
    """
    rng = np.random.default_rng(3)
    corner = rng.random((50, 2))
    lo, hi = corner * 0.5, corner * 0.5 + 0.5
    rest = 5 + rng.random((50, 2)) * 90
    lo, hi = np.vstack([lo, rest]), np.vstack([hi, np.minimum(rest + rng.random((50, 2)) * 90, 100)])
    snapshot = snapshot_of(spark, [f"id{k:03d}" for k in range(100)], lo, hi)
    events = spark.createDataFrame(
        [(point,) for point in rng.random((200, 2)).tolist()], "point array<double>"
    )
    report = repartition(snapshot, order(tmp_path, method="traffic", servers=2), events)
    assert report.events_given
    assert sorted(one.hit_ratio > 0 for one in report.after.servers) == [False, True]
    rows = spark.read.parquet(str(tmp_path / "plan")).collect()
    assert len({row["server"] for row in rows if row["id"] < "id050"}) == 1


def test_hit_ratios_are_those_of_the_servers_summaries(spark: SparkSession, tmp_path: Path) -> None:
    """Every server's precise summary, as the dispatcher would hold it, asked about the same events."""
    rng = np.random.default_rng(4)
    n = 400
    one, other = rng.random((2, n, 2)) * 10
    # Small ones, so that the ratios are far from 1.
    lo, hi = np.minimum(one, other), np.minimum(one, other) + np.abs(one - other) * 0.2
    servers = [f"s{k}" for k in rng.integers(0, 3, n)]
    snapshot = snapshot_of(spark, [f"id{k}" for k in range(n)], lo, hi, servers)
    points = rng.random((900, 2)) * 10
    events = spark.createDataFrame([(point,) for point in points.tolist()], "point array<double>")
    report = repartition(snapshot, order(tmp_path), events)
    planned = {row["id"]: row["server"] for row in spark.read.parquet(str(tmp_path / "plan")).collect()}
    after = [planned[f"id{k}"] for k in range(n)]
    assert report.before is not None
    router = new_router("bitmap")
    for state, hosts in ((report.before, servers), (report.after, after)):
        for told in state.servers:
            mine = np.flatnonzero(np.array(hosts) == told.server)
            maximal = Maximal(2)
            maximal.insert(range(len(mine)), lo[mine], hi[mine])
            summary = Summary.build(*maximal.rects())
            routed = np.zeros((len(points), 1), dtype=np.bool_)
            router.bundle([(0, router.cover(*summary.cut(summary.count)))]).mark(points, routed)
            assert 0 < told.hit_ratio < 1
            assert told.hit_ratio == pytest.approx(routed.mean(), abs=1e-12)


def test_the_command_plans_and_prints_what_changes(spark: SparkSession, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(plan)
    snapshot = str(tmp_path / "snapshot")
    random_snapshot(spark, 30).write.parquet(snapshot)
    options = ["--snapshot", snapshot, "--plan", str(tmp_path / "plan"), "--master", "local[2]"]
    done = CliRunner().invoke(app, [*options, "--servers", "s0, s1, s2", "--json"])
    assert done.exit_code == 0
    report = msgspec.json.decode(done.stdout, type=Report)
    assert [one.subscriptions for one in report.after.servers] == [10, 10, 10]
    again = CliRunner().invoke(app, [*options, "--servers", "3"])
    assert again.exit_code == 2
    assert "exists already; choose another path" in again.stderr


def test_servers_are_those_of_the_snapshot_or_named() -> None:
    assert server_names(2, ["a", "b"]) == ["a", "b"]
    assert server_names(2, []) == ["server-0", "server-1"]
    assert server_names(["x"], ["a", "b"]) == ["x"]
    with pytest.raises(InvalidInput, match="the snapshot has 2 servers, got 3"):
        server_names(3, ["a", "b"])


def test_without_java_the_way_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(EdnError, match="openjdk-17-jre-headless"):
        new_session(master="local[1]")


def test_a_java_that_does_not_run_spark_is_told_with_the_right_one(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho loading >&2\necho Unrecognized option: --add-modules >&2\nexit 1\n")
    java.chmod(0o755)
    options = [
        "--snapshot",
        "none",
        "--plan",
        str(tmp_path / "plan"),
        "--servers",
        "2",
        "--master",
        "local[1]",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "partitioning.job", *options],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert "openjdk-17-jre-headless" in ran.stderr
    assert "(Unrecognized option: --add-modules)" in ran.stderr
    # The log of Java does not reach the terminal.
    assert "loading" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_method_that_is_none_is_refused_before_spark_starts() -> None:
    app = typer.Typer()
    app.command()(plan)
    with mock.patch("partitioning.spark.session.new_session", side_effect=AssertionError):
        options = ["--snapshot", "s", "--plan", "p", "--servers", "2", "--method", "best"]
        done = CliRunner().invoke(app, options)
    assert done.exit_code == 2, done.output
    assert 'got "best"' in done.stderr


@pytest.mark.parametrize("options", [["--seed", "-1"], ["--partitions", "0"], ["--distances", "1,x"]])
def test_numbers_that_make_no_sense_are_refused_before_anything_starts(options: list[str]) -> None:
    app = typer.Typer()
    app.command()(plan)
    with mock.patch("partitioning.command.make", side_effect=AssertionError):
        done = CliRunner().invoke(app, ["--snapshot", "s", "--plan", "p", "--servers", "2", *options])
    assert done.exit_code == 2, done.output
