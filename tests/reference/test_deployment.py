"""What `deploy/` holds names only what exists, and is taken by the tools that read it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dispatcher.metrics import METRICS as OF_DISPATCHER
from edn_server.metrics import METRICS as OF_SERVER

DEPLOY = Path(__file__).parents[2] / "deploy"
HISTOGRAMS = ("edn_server_post_seconds", "edn_server_delivery_seconds")
KNOWN = {metric.name for metric in (*OF_DISPATCHER, *OF_SERVER)} | {f"{name}_bucket" for name in HISTOGRAMS}


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bedn_(?:dispatcher|server)_[a-z_]+", text))


@pytest.mark.parametrize("file", ["prometheus/alerts.yml", "prometheus/alerts_test.yml", "grafana/edn.json"])
def test_rules_and_panels_ask_for_metrics_that_exist(file: str) -> None:
    asked = {name.removesuffix("_") for name in metrics_in((DEPLOY / file).read_text())}
    assert asked
    assert asked - KNOWN - set(HISTOGRAMS) - {"edn_server_failing_addresses"} == set()


def test_the_dashboard_file_is_whole() -> None:
    dashboard = json.loads((DEPLOY / "grafana/edn.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) >= 8
    assert all(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "config", "prometheus/prometheus.yml"],
        ["check", "rules", "prometheus/alerts.yml"],
        ["test", "rules", "prometheus/alerts_test.yml"],
    ],
)
def test_promtool_takes_the_rules(arguments: list[str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; on Debian: apt-get install prometheus")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, cwd=DEPLOY)
    assert done.returncode == 0, done.stdout + done.stderr


def test_units_and_compose_set_variables_that_exist() -> None:
    page = (DEPLOY.parent / "docs/operating.md").read_text()
    texts = [path.read_text() for path in [*DEPLOY.glob("systemd/*.service"), DEPLOY / "compose.yaml"]]
    used = {name for text in texts for name in re.findall(r"\b(EDN_[A-Z_]+)", text)}
    assert len(used) >= 8
    assert {name for name in used if f"`{name}" not in page} == set()


def test_compose_is_one_network() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    servers = {name: one for name, one in services.items() if "edn_server" in one.get("command", ())}
    assert len(servers) >= 2
    for name, one in servers.items():
        assert one["environment"]["EDN_SERVER_ID"] == name
        for url in one["environment"]["EDN_SERVER_DISPATCHER"].split(","):
            assert re.fullmatch(r"http://(\w+):8080", url)[1] in services  # type: ignore[index]


def test_systemd_takes_the_units() -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    units = [str(path) for path in DEPLOY.glob("systemd/*.service")]
    done = subprocess.run([program, "verify", *units], capture_output=True, text=True)
    # What it cannot know here is whether the program is installed where the units say.
    said = [line for line in done.stderr.splitlines() if "edn" in line and "not executable" not in line]
    assert said == []
