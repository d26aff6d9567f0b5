"""The job as others start it: by `spark-submit`, and on as many subscriptions as it is made for."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"

pytestmark = pytest.mark.slow


def random_rectangles(spark: SparkSession, count: int, path: Path, dimensions: int = 4) -> None:
    """Bounds the smaller and the larger of two even draws, written by Spark itself."""
    draws = [f"rand({2 * d}) * 10 as a{d}, rand({2 * d + 1}) * 10 as b{d}" for d in range(dimensions)]
    least = ", ".join(f"least(a{d}, b{d})" for d in range(dimensions))
    greatest = ", ".join(f"greatest(a{d}, b{d})" for d in range(dimensions))
    spark.range(count).selectExpr("id", *", ".join(draws).split(", ")).selectExpr(
        "cast(id as string) as id",
        "cast(null as string) as server",
        f"array({least}) as lo",
        f"array({greatest}) as hi",
    ).write.parquet(str(path))


def run(*command: str, seconds: float) -> str:
    done = subprocess.run(
        list(command),
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.timeout(600)
def test_spark_submit_runs_the_job(spark: SparkSession, tmp_path: Path) -> None:
    random_rectangles(spark, 500, tmp_path / "snapshot")
    local = [f"spark.{name}=127.0.0.1" for name in ("driver.host", "driver.bindAddress")]
    settings = [word for one in [*local, "spark.ui.enabled=false"] for word in ("--conf", one)]
    arguments = ["--snapshot", str(tmp_path / "snapshot"), "--plan", str(tmp_path / "plan")]
    said = run(
        *(str(SUBMIT), "--master", "local[2]", *settings),
        *("partitioning/job.py", *arguments, "--servers", "a,b,c,d,e", "--json"),
        seconds=550,
    )
    report = json.loads(said[said.index("{") :])
    assert [one["subscriptions"] for one in report["after"]["servers"]] == [100] * 5
    written = spark.read.parquet(str(tmp_path / "plan"))
    assert written.schema.simpleString() == "struct<id:string,server:string>"
    assert written.groupBy("server").count().filter("count = 100").count() == 5


@pytest.mark.timeout(3600)
def test_five_million_subscriptions_take_no_more_than_n_log_n(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A driver of 2 GB; prints the seconds. The bound leaves a fifth for what else the machine does."""
    seconds = {}
    for count in (1_000_000, 5_000_000):
        snapshot, plan = tmp_path / f"{count}", tmp_path / f"plan-{count}"
        random_rectangles(spark, count, snapshot)
        began = time.monotonic()
        said = run(
            *(sys.executable, "-m", "partitioning.job", "--snapshot", str(snapshot), "--plan", str(plan)),
            *("--servers", "10", "--master", "local[2]", "--driver-memory", "2g", "--json"),
            seconds=3000,
        )
        seconds[count] = time.monotonic() - began
        report = json.loads(said[said.index("{") :])
        assert [one["subscriptions"] for one in report["after"]["servers"]] == [count // 10] * 10
        with capsys.disabled():
            print(f"\n{count:,} subscriptions in {seconds[count]:.0f} s", flush=True)
    small, large = seconds
    growth = seconds[large] / seconds[small]
    assert growth <= 1.2 * (large * math.log(large)) / (small * math.log(small))
