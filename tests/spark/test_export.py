"""From a running network to a plan: `edn export`, then the job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from edn.cli import export as exporter
from edn.cli.app import app
from partitioning import command
from partitioning.planner import PlanOptions, repartition
from partitioning.report import Report, State
from partitioning.spark.snapshot import read_parquet
from tests.network import Network

SERVERS = 1
INF = float("inf")
SINK = {"url": "http://127.0.0.1:9/"}
#: more than a page and a group, as they are set for these tests
NARROW = 25


@pytest.fixture(scope="module", autouse=True)
def subscribed(network: Network) -> None:
    attributes = {"n": "number", "price": "number"}
    network.http.put("/v1/topics/quotes", json={"attributes": attributes})
    network.http.put("/v1/topics/other", json={"attributes": {"x": "number"}})
    filters: dict[str, Any] = {
        "everything": None,
        "twice": {"$any": [{"price": {"between": [1, 2]}}, {"price": {"between": [5, 6]}}]},
        "nothing": {"$all": [{"price": {"between": [1, 2]}}, {"price": {"between": [5, 6]}}]},
        "present": {"price": {"exists": True}},
    }
    filters |= {f"narrow-{k}": {"n": {"between": [k, k + 1]}} for k in range(NARROW)}
    bodies = [{"id": id, "topic": "quotes", "filter": one, "sink": SINK} for id, one in filters.items()]
    answer = network.http.post("/v1/subscriptions", json=bodies)
    assert answer.status_code == 201, answer.text
    elsewhere = {"id": "elsewhere", "topic": "other", "sink": SINK}
    assert network.http.post("/v1/subscriptions", json=elsewhere).status_code == 201


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "PAGE", 7)
    monkeypatch.setattr(exporter, "GROUP", 10)


def export(network: Network, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["export", *arguments, "--url", network.url])


@pytest.mark.slow
def test_an_export_of_the_running_network_is_what_a_plan_is_made_from(
    network: Network, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "quotes.parquet"
    done = export(network, str(path), "--topic", "quotes", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"subscriptions": NARROW + 4, "rectangles": NARROW + 5}
    table = pq.read_table(path)
    bounds = pa.list_(pa.float64())
    assert table.schema.equals(
        pa.schema(
            [
                ("id", pa.string()),
                ("server", pa.string()),
                ("lo", bounds),
                ("hi", bounds),
                ("subscription", pa.string()),
            ]
        )
    )
    rows: dict[str, list[tuple[list[float], list[float]]]] = {}
    for row in table.to_pylist():
        assert row["server"] == "s1"
        rows.setdefault(row["id"], []).append((row["lo"], row["hi"]))
    assert rows["everything"] == [([-INF, -INF], [INF, INF])]
    assert sorted(rows["twice"]) == [([-INF, 1.0], [INF, 2.0]), ([-INF, 5.0], [INF, 6.0])]
    assert rows["nothing"] == [([-INF, -INF], [-INF, -INF])]
    assert rows["narrow-3"] == [([3.0, -INF], [4.0, INF])]
    [(lo, _)] = rows["present"]
    assert -INF < lo[1] < -1e300

    plan = tmp_path / "plan"
    order = PlanOptions(method="rtree", servers=["s1", "s2"], plan=str(plan), partitions=2)
    report = repartition(read_parquet(spark, str(path)), order)
    written = spark.read.parquet(str(plan))
    assert written.schema.simpleString() == "struct<id:string,server:string>"
    planned = {row["id"]: row["server"] for row in written.collect()}
    assert planned.keys() == rows.keys()
    assert sorted(one.subscriptions for one in report.after.servers) == [14, 15]
    # Those of the lower half and of the upper half are not mixed.
    assert planned["narrow-0"] == planned["narrow-1"] != planned["narrow-23"] == planned["narrow-24"]


def test_a_repartition_for_programs_prints_one_document(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def without_spark(snapshot: str, **wanted: Any) -> Report:
        asked.update(wanted)
        ids = pq.read_table(snapshot).column("id").unique()
        pq.write_table(pa.table({"id": ids, "server": ["s1"] * len(ids)}), wanted["plan"])
        after = State([], hit_ratio=1.0, imbalance=1.0, volume=1.0)
        return Report("rtree", len(ids), 2, len(ids), 1, False, 0, None, after, 0.0)

    monkeypatch.setattr(command, "make", without_spark)
    done = CliRunner().invoke(
        app, ["repartition", "--topic", "quotes", "--yes", "--json", "--url", network.url]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["state"] == "done"
    # By name: a number alone would be how many there are.
    assert asked["servers"] == ["s1"]


def test_a_repartition_without_a_gain_moves_nothing(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = State([], hit_ratio=1.0, imbalance=1.0, volume=1.0)

    def without_gain(snapshot: str, **wanted: Any) -> Report:
        return Report("rtree", 29, 2, 29, 1, False, 6, same, same, 0.0)

    monkeypatch.setattr(command, "make", without_gain)
    before = network.http.get("/v1/repartitions").json()["repartitions"]
    done = CliRunner().invoke(
        app, ["repartition", "--topic", "quotes", "--yes", "--json", "--url", network.url]
    )
    assert done.exit_code == 0, done.output
    assert "no subscription was moved" in done.stderr
    assert json.loads(done.stdout)["moved"] == 6, "the plan, as it would have been"
    assert network.http.get("/v1/repartitions").json()["repartitions"] == before


def test_json_lines_are_the_subscriptions_as_they_are_read(network: Network, tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    assert export(network, str(path)).exit_code == 0
    topics, lines = [], []
    for line in map(json.loads, path.read_text().splitlines()):
        assert not lines or "attributes" not in line, "topics come first"
        (topics if "attributes" in line else lines).append(line)
    assert {topic["name"] for topic in topics} == {"quotes", "other"}
    assert len(lines) == NARROW + 5
    twice = next(one for one in lines if one["id"] == "twice")
    read = network.http.get("/v1/subscriptions/twice").json()
    for name in ("topic", "filter", "owner", "server", "created"):
        assert twice[name] == read[name]
    assert twice["sink"]["url"] == SINK["url"]
    shown = export(network, "-", "--json-lines", "--topic", "other")
    topic, subscription = map(json.loads, shown.stdout.splitlines())
    assert (topic["name"], subscription["id"]) == ("other", "elsewhere")


def test_an_attribute_that_comes_while_it_is_exported_is_known(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = exporter._Binder.__init__

    def before_the_attribute(self: Any, client: Any, topic: str) -> None:
        started(self, client, topic)
        network.http.put("/v1/topics/other", json={"attributes": {"x": "number", "late": "number"}})
        body = {"id": "late", "topic": "other", "filter": {"late": 4}, "sink": SINK}
        assert network.http.post("/v1/subscriptions", json=body).status_code == 201

    monkeypatch.setattr(exporter._Binder, "__init__", before_the_attribute)
    path = tmp_path / "other.parquet"
    assert export(network, str(path), "--topic", "other").exit_code == 0
    rows = {row["id"]: (row["lo"], row["hi"]) for row in pq.read_table(path).to_pylist()}
    # The first is as wide as the topic was when it was read.
    assert rows["elsewhere"][0] == [-INF]
    assert rows["late"] == ([-INF, 4.0], [INF, 4.0])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{new}", "--topic", "unknown"], 1, 'topic "unknown" does not exist'),
        (["{new}"], 2, "choose it with --topic (topics: other, quotes)"),
        (["{old}", "--topic", "quotes"], 2, "exists"),
        (["-", "--topic", "quotes", "--json"], 2, "--json requires a file"),
        (["{new}/no/such/folder", "--topic", "quotes"], 2, "cannot write"),
    ],
)
def test_what_cannot_be_exported_is_said_and_leaves_nothing(
    network: Network, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    old = tmp_path / "old"
    old.write_text("precious")
    given = [one.format(new=tmp_path / "new", old=old) for one in arguments]
    done = export(network, *given)
    assert (done.exit_code, said in done.stderr) == (code, True), done.stderr
    assert old.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
