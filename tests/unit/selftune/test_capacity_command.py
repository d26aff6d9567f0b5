"""`edn capacity`: the throughput model as a calculator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edn.cli.app import app

#: the published set-up, as a dispatcher tells it
TOLD = {
    "mode": "fixed",
    "parameters": {
        "servers": 10, "fixed": 1.6e-3, "per_copy": 0.0, "message_bytes": 3000.0, "bandwidth": 10e6,
        "serving": 0.0, "arrival": 0.0, "core": 1.0,
    },
    "curve": [
        {"precision": 0.0, "routing": 0.0, "hit_ratio": 1.0, "throughput": None},
        {"precision": 0.4, "routing": 72e-6, "hit_ratio": 0.72, "throughput": None},
        {"precision": 1.0, "routing": 139e-6, "hit_ratio": 0.43, "throughput": None},
    ],
}  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(TOLD))
    return path


def run(saved: Path, *words: str) -> Any:
    result = CliRunner().invoke(app, ["capacity", "--from", str(saved), *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("words", "precision", "throughput", "bottleneck"),
    [
        # 1 / (1.6 ms + 10 × 72 µs)
        ((), 0.4, 431.0, "TP_D"),
        # Figure 13: 10 Mbit/s, and the precise summary is best: 1.25 MB/s ÷ (0.43 × 30 KB)
        (("--bandwidth", "1.25e6"), 1.0, 96.9, "TP_OL"),
        # Figure 12: T_f = 0.2 ms moves the best towards precise: 10 MB/s ÷ (0.72 × 30 KB) at 0.4
        (("--fixed-us", "200"), 1.0, 628.9, "TP_D"),
        # Figure 14: a CPU of half the speed: 0.5 / 1.6 ms without summaries
        (("--cpu", "0.5"), 0.0, 312.5, "TP_D"),
        # Figure 15: T_c = 0.5 ms: 1 / (1.6 + 1.39 + 0.5 × 4.3) ms
        (("--per-copy-us", "500"), 1.0, 194.6, "TP_D"),
        # five servers: 10 MB/s ÷ (0.72 × 15 KB) = 926 and 1 / (1.6 + 0.36) ms; without: 667 and 625
        (("--servers", "5"), 0.0, 625.0, "TP_D"),
        (("--message-bytes", "6000", "--bandwidth", "20e6"), 0.4, 431.0, "TP_D"),
        # T_s F = 5 ms: 1 / (0.43 × 5 ms) = 465 > TP_D = 334; at 0.4: 278
        (("--serving-us", "5000"), 1.0, 334.4, "TP_D"),
    ],
)
def test_what_if(
    saved: Path, words: tuple[str, ...], precision: float, throughput: float, bottleneck: str
) -> None:
    best = json.loads(run(saved, *words, "--json"))["what_if"]["best"]
    assert best["precision"] == precision
    assert best["throughput"] == pytest.approx(throughput, abs=0.1)
    assert best["bottleneck"] == bottleneck


def test_more_subscriptions_cost_routing_and_hit_more(saved: Path) -> None:
    told = json.loads(run(saved, "--subscriptions", "2", "--json"))
    precise = told["what_if"]["curve"][-1]
    assert precise["routing_us"] == pytest.approx(278.0)
    assert precise["hit_ratio"] == pytest.approx(1 - 0.57 * 0.57)
    assert told["what_if"]["curve"][0] == told["now"]["curve"][0]


def test_values_are_compared_in_a_table(saved: Path) -> None:
    varied = json.loads(run(saved, "--vary", "bandwidth", "--values", "1.25e6,1e9", "--json"))["varied"]
    assert {value: best["precision"] for value, best in varied.items()} == {"1.25e+06": 1.0, "1e+09": 0.0}
    table = run(saved, "--vary", "servers", "--values", "2,50")
    assert "Best: precision 0.4" in table
    assert "TP_S    events per second that the servers" in table, "the columns are explained"
    assert "servers" in table


@pytest.mark.parametrize(
    ("told", "words", "code", "expected"),
    [
        ({**TOLD, "curve": []}, (), 1, "nothing has been measured yet"),
        ({**TOLD, "parameters": None}, (), 1, "nothing has been measured yet"),
        (TOLD, ("--vary", "colour", "--values", "1"), 2, "colour"),
        (TOLD, ("--vary", "cpu", "--values", "fast"), 2, 'separated by commas, got "fast"'),
        (TOLD, ("--vary", "servers"), 2, "--vary requires --values"),
        (TOLD, ("--values", "2,4"), 2, "--vary requires --values"),
    ],
)
def test_what_cannot_be_computed_is_said(
    tmp_path: Path, told: dict[str, Any], words: tuple[str, ...], code: int, expected: str
) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(told))
    result = CliRunner().invoke(app, ["capacity", "--from", str(path), *words])
    assert result.exit_code == code
    assert expected in result.stderr


def test_a_network_that_does_not_answer_is_said() -> None:
    result = CliRunner().invoke(app, ["capacity", "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 3
    assert "cannot reach http://127.0.0.1:9" in result.stderr


@pytest.mark.parametrize(
    "told",
    [
        [],
        {**TOLD, "parameters": {**TOLD["parameters"], "speed": 3}},  # type: ignore[dict-item]  # as JSON is
        {**TOLD, "parameters": {"fixed": 1.6e-3}},
        {**TOLD, "parameters": 7},
        {**TOLD, "curve": [{"precision": 0.4}]},
        {**TOLD, "curve": [{"precision": 0.4, "routing": [], "hit_ratio": 1.0}]},
    ],
)
def test_a_file_that_is_no_such_answer_is_refused_in_one_line(tmp_path: Path, told: Any) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(told))
    result = CliRunner().invoke(app, ["capacity", "--from", str(path)])
    assert result.exit_code == 2
    assert "answer of GET /v1/tuning" in result.stderr
    assert len(result.stderr.splitlines()) == 1
