from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from evaluation.command import app
from evaluation.partitioning import METHODS, Setup, evaluate, hit_ratio

pytest.importorskip("sklearn", reason="K-means needs the extra `spark`")


def test_the_hit_ratio_counts_pairs_of_events_and_servers() -> None:
    lo, hi = np.array([[0.0], [5.0], [0.0]]), np.array([[1.0], [6.0], [9.0]])
    events = np.array([[0.5], [5.5], [9.5]])
    # server 0: the first event; server 1: the first two; server 2, empty: none
    parts = np.array([0, 1, 1])
    assert hit_ratio(lo, hi, parts, 3, events) == pytest.approx(3 / 9)


def test_similar_subscriptions_together_save_traffic_and_loads_are_told() -> None:
    setup = Setup(servers=4, dimensions=2, per_server=150, events=400, seeds=(0,))
    found = {one.method: one for one in evaluate(setup)}
    assert set(found) == set(METHODS)
    assert found["R-tree offline"].hit_ratio < 0.9 * found["random"].hit_ratio
    for one in found.values():
        assert sum(one.outcomes[0].loads) == 600
        assert one.largest_load <= 300
    assert found["R-tree offline"].smallest_load == found["R-tree offline"].largest_load == 150


def test_where_events_are_uneven_looking_at_them_helps() -> None:
    setup = Setup(servers=4, dimensions=2, per_server=150, events=400, seeds=(0,), distribution="normal")
    found = {one.method: one for one in evaluate(setup, ("R-tree offline", "traffic offline"))}
    assert found["traffic offline"].hit_ratio < found["R-tree offline"].hit_ratio


def test_the_command_prints_json() -> None:
    options = [
        "--servers",
        "2",
        "--dimensions",
        "2",
        "--per-server",
        "20",
        "--seed",
        "1",
        "--method",
        "random",
    ]
    outcome = CliRunner().invoke(app, ["partitioning", *options, "--json"])
    assert outcome.exit_code == 0
    told = json.loads(outcome.stdout)
    assert told["setup"]["seeds"] == [1]
    assert told["results"][0]["outcomes"][0]["loads"] == [20, 20]


def test_an_unknown_distribution_is_refused() -> None:
    outcome = CliRunner().invoke(app, ["partitioning", "--distribution", "flat"])
    assert outcome.exit_code == 2
    assert "uniform, normal, zipf, zipf-both" in outcome.stderr
