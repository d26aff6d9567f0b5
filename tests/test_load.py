"""The load test itself, run for seconds: it must not rot. What it measures is nobody's business here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_a_short_run_measures_every_kind_of_request_and_leaves_its_results(tmp_path: Path) -> None:
    options = {"--seconds": 4, "--users": 7, "--servers": 1, "--subscriptions": 1000, "--results": tmp_path}
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
    assert "publish 100" in done.stdout
