"""The benchmarks that start a network: they run, and what they print is whole."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def bench(*arguments: str, quick: bool = True) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "edn.cli", "bench", *arguments, "--json", *(["--quick"] if quick else [])],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_cost_of_publishing_is_measured_beside_a_bare_app() -> None:
    [cost] = bench("publish", "--dimensions", "4")
    assert cost["matches_per_event"] > 0
    assert 0 < cost["hit_ratio"] <= 1
    for name in ("bare_events_per_second", "network_events_per_second", "dispatcher_cpu_ratio"):
        assert cost[name] > 0


@pytest.mark.slow
def test_delivery_is_measured_until_every_notification_has_arrived() -> None:
    outcome = bench("delivery", "--systems", "edn,floor")
    assert outcome["complete"] is True
    assert [(cost["load"], cost["addresses"]) for cost in outcome["costs"]] == [
        ("calm 20/s", 20),
        ("flat out", 20),
    ]
    for cost in outcome["costs"]:
        assert (cost["missing"], cost["surplus"]) == (0, 0)
        assert cost["roles"].keys() == cost["idle"].keys() == {"dispatcher", "s1", "s2"}
        assert 0 < cost["p50"] <= cost["p99"] <= cost["p999"]
        assert min(cost[name] for name in ("posts_per_second", "entries_per_second", "memory_mb")) > 0
    assert [(one["variant"], one["load"]) for one in outcome["floor"]] == [
        *((variant, "flat out") for variant in ("bare", "json", "hmac", "both")),
        ("both", "calm 20/s"),
    ]
    assert all(one["cpu_us_per_post"] > 0 for one in outcome["floor"])
    assert len(outcome["verdicts"]) == 2


#: of `edn bench delivery`, with a single address, too
TINY = ("--addresses", "1,20", "--rates", "20", "--seconds", "1", "--flat-events", "200", "--rounds", "1")


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("redis-server") is None or not list(Path("/usr/lib/postgresql").glob("*/bin/postgres")),
    reason="needs PostgreSQL and Redis (`make bench-peers`)",
)
def test_delivery_is_measured_beside_peers_on_postgresql_and_redis() -> None:
    outcome = bench("delivery", *TINY, "--subscriptions", "200", quick=False)
    assert outcome["complete"] is True
    systems = ["edn", "pg", "redis", "redis-everysec"]
    assert [cost["system"] for cost in outcome["costs"]] == 4 * systems
    for cost in outcome["costs"]:
        assert (cost["missing"], cost["surplus"]) == (0, 0)
    [timeline] = outcome["timelines"]
    assert timeline["events"] == 20
    assert timeline["steps"].keys() == {
        "logged by the dispatcher",
        "publish answered",
        "applied by the server",
        "POST started",
        "arrived",
        "POST answered",
    }
    assert 0 < timeline["steps"]["applied by the server"] < timeline["steps"]["arrived"]


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["cloudevents", "soap", "sse"])
def test_delivery_is_measured_to_every_kind_of_sink(sink: str) -> None:
    outcome = bench("delivery", "--systems", "edn", "--sink", sink)
    assert (outcome["sink"], outcome["complete"]) == (sink, True)


@pytest.mark.slow
def test_delivery_to_healthy_addresses_is_measured_beside_bad_ones() -> None:
    outcome = bench("delivery", "--systems", "edn", "--fairness")
    [fairness] = outcome["fairness"]
    assert (fairness["healthy"], fairness["slow"], fairness["dead"]) == (17, 2, 1)
    assert (fairness["missing"], fairness["surplus"]) == (0, 0)
    assert fairness["p99_ratio"] > 0
    assert fairness["entries_ratio"] > 0


needs_postgresql = pytest.mark.skipif(
    not list(Path("/usr/lib/postgresql").glob("*/bin/postgres")), reason="needs PostgreSQL"
)


@pytest.mark.slow
@needs_postgresql
def test_postgresql_is_measured_beside_sqlite() -> None:
    outcome = bench("database")
    for part in ("append", "apply", "publish"):
        assert [one["engine"] for one in outcome[part]] == ["SQLite", "PostgreSQL"]
    assert [one["system"] for one in outcome["delivery"]] == ["edn", "edn-database"] * 2
    assert [one["dispatchers"] for one in outcome["dispatchers"]] == [1, 2, 4]
    assert all(one["total_us"] > 0 < one["batch"] for one in outcome["dispatchers"])
    assert outcome["round_trip"] > 0
    assert len(outcome["bounds"]) == 7
    for one in outcome["bounds"]:
        kept = one["measured"] >= one["bound"] if one["is_least"] else one["measured"] <= one["bound"]
        assert (one["measured"] > 0, one["is_kept"]) == (True, kept)


@pytest.mark.slow
@needs_postgresql
def test_the_tables_of_a_network_on_postgresql_are_watched() -> None:
    bloat = bench("bloat")
    assert bloat["events"] > 0
    assert bloat["notifications"] > 0
    assert {one["table"] for one in bloat["samples"]} >= {"log_records", "shard_events", "shard_outbox"}
    assert bloat["grown"] == []


@pytest.mark.slow
def test_overload_loses_nothing_and_answers_by_the_book() -> None:
    outcome = bench("overload")
    assert outcome["accepted"] > 0
    assert (outcome["missing"], outcome["unexpected"], outcome["without_retry_after"]) == (0, 0, 0)
    assert set(outcome["answers"]) <= {"202", "429", "503"}


@pytest.mark.slow
def test_dead_letters_are_asked_for_in_every_way() -> None:
    times = bench("deadletters")
    assert len(times) == 5
    assert all(0 < one["median"] <= one["slowest"] for one in times)
    assert [one["distributions"][0]["what"] for one in times] == [one["call"] for one in times]


@pytest.mark.slow
def test_what_is_imported_and_exported_in_bulk_stays_what_it_was() -> None:
    outcome = bench("bulk")
    assert outcome["subscriptions"] > 0
    assert outcome["different"] == 0


@pytest.mark.slow
def test_open_dashboards_are_measured_turn_by_turn() -> None:
    outcome = bench("dashboard")
    assert outcome["cpu_us"].keys() == {"nobody", "overview", "map"}
    assert all(len(times) == 1 and times[0] > 0 for times in outcome["cpu_us"].values())
    alone = outcome["cpu_us"]["nobody"][0]
    assert outcome["share"] == {
        view: pytest.approx(outcome["cpu_us"][view][0] / alone - 1) for view in ("overview", "map")
    }
    assert outcome["accepted"] > 0


@pytest.mark.slow
def test_the_past_is_told_while_others_publish() -> None:
    outcome = bench("replay")
    assert len(outcome["first"]) == len(outcome["all"]) == 2
    assert outcome["matching"] > 0
    assert outcome["throughput_ratio"] > 0


@pytest.mark.slow
def test_delivery_is_measured_beside_bad_addresses() -> None:
    outcome = bench("isolation")
    assert len(outcome["without"]) == len(outcome["beside"]) == 1
    assert outcome["ratio"] > 0
    for one, tail in zip(outcome["distributions"], (outcome["without"], outcome["beside"]), strict=True):
        assert sum(bucket["count"] for bucket in one["buckets"]) == one["count"] == 25  # addresses × events
        assert one["p99"] == pytest.approx(1000 * tail[0])


@pytest.mark.slow
def test_topics_that_come_and_go_are_measured() -> None:
    outcome = bench("topics")
    assert len(outcome["cycles"]) == 2
    assert len(outcome["subscribing"]) == 2
    assert min(outcome["before"], outcome["during"], outcome["after"]) > 0
    assert outcome["alone"] > 0
    assert outcome["answered"] == {"201": 21}
    assert all(outcome[f"limited_{where}"][1] > 0 for where in ("alone", "elsewhere", "beside"))


@pytest.mark.slow
def test_a_quiet_tenant_is_measured_beside_each_kind_of_noise() -> None:
    outcomes = bench("noisy")
    assert [one["case"] for one in outcomes] == ["hanging", "unresolved", "contains", "xpath", "topics"]
    for one in outcomes:
        assert one["failure"] == ""
        assert all(one[kind][time] > 0 for kind in ("quick", "slow", "calls") for time in one[kind])


@pytest.mark.slow
def test_a_million_dead_letters_are_listed_looked_at_and_resent_within_a_tenth_of_a_second() -> None:
    # Not the slowest: what else the machine does is not what is asked about.
    assert max(one["median"] for one in bench("deadletters", "--letters", "1000000", quick=False)) < 100


@pytest.mark.slow
def test_a_server_is_measured_by_itself() -> None:
    hosted = bench("hosting")
    assert hosted["subscriptions"] == 2000
    assert hosted["matches_per_event"] > 0
    for name in ("store_us", "event_us", "memory_mb", "disk_mb", "restart_seconds"):
        assert hosted[name] > 0


@pytest.mark.slow
def test_placement_through_a_network_is_that_of_the_policy_in_memory() -> None:
    [outcome] = bench("placement")
    assert (outcome["policy"], outcome["subscriptions"], outcome["same_server"]) == ("rtree", 400, 1.0)
    assert outcome["hit_ratio"] == outcome["in_memory"]
    assert 0 < outcome["smallest_load"] <= outcome["largest_load"] <= outcome["limit"]
    assert outcome["doors"] == outcome["doors_right"] == 4


@pytest.mark.slow
def test_capacity_is_measured_beside_the_model() -> None:
    told = bench("capacity")
    assert [row["precision"] for row in told["rows"]] == [step / 10 for step in range(11)]
    for row in told["rows"]:
        assert row["measured"] > 0
        assert row["predicted"] > 0
        assert row["bottleneck"] in ("TP_D", "TP_OL", "TP_S")
    assert told["parameters"]["servers"] == 1


@pytest.mark.slow
def test_self_tuning_is_measured_beside_fixed_precisions() -> None:
    told = bench("selftune")
    assert [one["name"] for one in told["situations"]] == ["base", "events", "link"]
    assert set(told["passes"]) == {"model", "fixed 0", "fixed 0.5", "fixed 1"}
    assert all(one["tuned"] > 0 for one in told["situations"])
