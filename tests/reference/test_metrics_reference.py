"""docs/metrics.md names every metric that the services expose, with kind, labels and help, and no other."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

import dispatcher.app
import dispatcher.config
import edn_server.app
from edn_server.config import Settings
from edn_server.services import Services

SECRET = "a secret of the tests, long enough"
PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
#: name → (kind, labels, help) of the page's tables
ROWS = {
    name: (kind, frozenset(re.findall(r"`(\w+)`", labels)), help)
    for name, kind, labels, help in re.findall(
        r"^\| `(\w+)` \| (counter|gauge|histogram) \| (.*?) ?\| (.*) \|$", PAGE, re.MULTILINE
    )
}
PROCESS = frozenset(re.findall(r"`(process_\w+)`", PAGE))


def exposed(app: FastAPI) -> dict[str, tuple[str, str]]:
    """Name, as Prometheus has it → kind and help."""

    async def scrape() -> str:
        # Not started: what can be said is said anyway.
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client:
            allowed = {"authorization": f"Bearer {SECRET}"}
            return (await client.get("/metrics", headers=allowed)).text

    return {
        family.name + ("_total" if family.type == "counter" else ""): (family.type, family.documentation)
        for family in text_string_to_metric_families(asyncio.run(scrape()))
    }


def test_the_page_names_what_the_services_expose(tmp_path: Path) -> None:
    front = dispatcher.app.create_app(
        dispatcher.config.Settings(data=tmp_path / "d", secret=SECRET, open=True)
    )
    services = Services(
        Settings(id="s1", data=tmp_path / "s", dispatcher=("http://127.0.0.1:9",), secret=SECRET)
    )
    try:
        found = exposed(front) | exposed(edn_server.app.create_app(services, "http://127.0.0.1:9"))
    finally:
        services.close()
    assert {name for name in found if name.startswith("process_")} == PROCESS
    for name, (kind, help) in found.items():
        if name not in PROCESS:
            assert ROWS[name][0] == kind, name
            assert ROWS[name][2] == help, name


@pytest.mark.parametrize("module", ["dispatcher.api.admin.metrics", "edn_server.observe.metrics"])
def test_the_page_has_the_tables_of_the_services_and_nothing_else(module: str) -> None:
    metrics = __import__(module, fromlist=["METRICS"]).METRICS
    prefix = module.split(".")[0].removeprefix("edn_")
    named = {metric.name: (metric.kind, frozenset(metric.labels), metric.help) for metric in metrics}
    page = {name: row for name, row in ROWS.items() if name.startswith(f"edn_{prefix}_")}
    histograms = {name for name, row in page.items() if row[0] == "histogram"}
    assert {name: row for name, row in page.items() if name not in histograms} == named


def test_names_follow_the_conventions() -> None:
    for name, (kind, labels, _) in ROWS.items():
        assert name.endswith("_total") == (kind == "counter"), name
        known = {"server", "topic", "log", "id", "version", "limit", "state", "outcome", "kind", "replica"}
        assert labels <= known, name
        assert not re.search(r"_(ms|milliseconds|kb|percent)\b", name), name
