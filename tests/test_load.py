"""The load test itself, run for seconds: it must not rot. What it measures is nobody's business here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edn.model.filter import Filter
from edn.model.schema import Schema
from load.market import ATTRIBUTES, filters, quotes
from load.plan import FORMS, at, phases

ROOT = Path(__file__).resolve().parents[1]


def test_a_short_run_measures_every_kind_of_request_and_leaves_its_results(tmp_path: Path) -> None:
    options = {
        "--shape": "link",
        "--seconds": 6,
        "--users": 7,
        "--servers": 1,
        "--subscriptions": 1000,
        "--results": tmp_path,
    }
    words = [str(word) for option in options.items() for word in option]
    done = subprocess.run(
        [sys.executable, "-m", "load", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    requests = {row["request"]: row for row in summary["requests"]}
    assert {"publish 1", "publish 100", "subscribe"} <= set(requests)
    assert sum(row["failures"] for row in requests.values()) == 0
    assert summary["events_per_second"] > 0
    assert summary["notifications"] > 0
    assert summary["undelivered"] == 0
    assert (tmp_path / "load.html").stat().st_size > 0
    assert [phase["phase"] for phase in summary["phases"]] == ["steady", "narrow link"]
    for phase in summary["phases"]:
        assert phase["events_per_second"] > 0
        assert phase["bottleneck"] in ("TP_IL", "TP_D", "TP_OL", "TP_S")
    page = (tmp_path / "report.html").read_text()
    assert "narrow link" in page
    assert "data:image/png" in page
    assert "publish 100" in done.stdout


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ("steady", ["steady"]),
        ("ramp", ["steady", "ramp"]),
        ("messaging", ["steady", "REST single", "REST batch", "SOAP 1.1", "SOAP 1.2"]),
        ("all", ["steady", "ramp", "other events", "narrow link", "more subscriptions", *FORMS]),
    ],
)
def test_a_shape_is_phases_that_fill_its_time(shape: str, names: list[str]) -> None:
    plan = phases(shape, seconds=100.0, users=8, subscriptions=10, narrow=1e5)
    assert [phase.name for phase in plan] == names
    assert sum(phase.seconds for phase in plan) == pytest.approx(100.0)
    assert at(plan, 0.0) == (plan[0], 8)
    assert at(plan, 100.1) is None


def test_a_ramp_rises_to_four_times_the_users() -> None:
    plan = phases("ramp", seconds=100.0, users=8, subscriptions=10, narrow=1e5)
    assert [at(plan, second)[1] for second in (49.0, 50.0, 75.0, 99.99)] == [8, 8, 20, 32]  # type: ignore[index]  # the plan is not over


def test_filters_and_quotes_of_the_load_fit_their_topic() -> None:
    rng = np.random.default_rng(1)
    schema = Schema.parse(ATTRIBUTES)
    bound = [Filter.parse(one).bind(schema) for one in filters(rng, 200)]
    batch = schema.decode_events(json.dumps(quotes(rng, 300) + quotes(rng, 10, crowded=True)).encode())
    assert len(batch.points) == 310
    rects = [one.rects() for one in bound]
    hits = [
        bool(((batch.points >= lo) & (batch.points <= hi)).all(axis=1).any())
        for one in rects
        for lo, hi in zip(one.lo, one.hi, strict=True)
    ]
    assert 0 < sum(hits) < len(hits)
