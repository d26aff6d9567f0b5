"""A browser for the tests, or the reason why there is none; a network with something to see."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.network import Hook, Network
from tests.programs import require

SYMBOLS = ("GE", "IBM", "KO")


@pytest.fixture(scope="module")  # no longer: playwright holds an event loop, which others want to run
def browser() -> Iterator[Browser]:
    """Starts Debian's Chromium."""
    program = shutil.which("google-chrome") or require("chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def lively(network: Network, hook: Hook) -> Network:
    """Two servers, thirty subscriptions on narrow rectangles, some events."""
    network.http.put("/v1/topics/stocks", json={"attributes": {"symbol": "string", "price": "number"}})
    made = [
        {
            "id": f"{symbol.lower()}-{number}",
            "topic": "stocks",
            "filter": {"symbol": symbol, "price": {"between": [10 * number, 10 * number + 3]}},
            "sink": {"url": hook.url(f"/{symbol.lower()}"), "recipient": f"friend {number}"},
            "owner": "browser",
        }
        for symbol in SYMBOLS
        for number in range(10)
    ]
    answer = network.http.post("/v1/subscriptions", json=made)
    assert answer.status_code == 201, answer.text
    publish(network, [{"symbol": symbol, "price": 2 * step} for symbol in SYMBOLS for step in range(50)])
    return network


def publish(network: Network, events: list[dict[str, Any]]) -> None:
    answer = network.http.post("/v1/topics/stocks/events", json=events)
    assert answer.status_code == 202, answer.text


@dataclass(slots=True)
class Heard:
    """What the page complained of, and where else it looked."""

    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def opened(browser: Browser, lively: Network) -> Iterator[tuple[Page, Heard]]:
    """One page for all tests of a module: reading Plotly takes seconds."""
    page, heard = browser.new_page(viewport={"width": 1280, "height": 900}), Heard()
    page.on("pageerror", lambda error: heard.complaints.append(str(error)))
    page.on("console", lambda line: heard.complaints.append(line.text) if line.type == "error" else None)
    page.on("request", lambda request: heard.elsewhere.append(request.url))
    page.goto(f"{lively.url}/")
    page.wait_for_selector('.dot[data-state="live"]')
    page.wait_for_selector("#try-topic option", state="attached")
    yield page, heard
    page.close()


@pytest.fixture
def page(opened: tuple[Page, Heard], lively: Network) -> Iterator[Page]:
    """The dashboard, live; whatever it complains of fails the test, and so does a request to another host."""
    page, heard = opened
    page.click("#tab-overview")
    yield page
    # What the network refuses, the browser notes; the page says it to the user.
    assert [line for line in heard.complaints if "422 (Unprocessable" not in line] == []
    own = (lively.url, "data:", "blob:")
    assert [url for url in heard.elsewhere if not url.startswith(own)] == []
