"""The dashboard where administration has an address of its own: the other one says so, and where it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.network import Process


@pytest.fixture
def dispatcher(tmp_path: Path) -> Iterator[Process]:
    secret = tmp_path / "secret"
    secret.write_text("a secret of the tests, long enough\n")
    options = ["--data", str(tmp_path / "data"), "--port", "0", "--admin-port", "0", "--open"]
    running = Process("dispatcher", ["dispatcher", *options, "--secret-file", str(secret)], tmp_path)
    running.start()
    running.await_ready()
    yield running
    running.stop()


def test_the_public_address_says_where_the_whole_dashboard_is(browser: Browser, dispatcher: Process) -> None:
    page = browser.new_page()
    page.goto(f"{dispatcher.url}/")
    status = page.locator("#status-text")
    expect(status).to_contain_text("open the dashboard at the admin port")
    expect(status).to_contain_text(f"port {dispatcher.ready['admin'].rpartition(':')[2]}")
    expect(page.locator("#topics")).to_contain_text("No topics yet.")
    for administered in (".tiles", "#servers", "#tab-map"):
        expect(page.locator(administered)).to_be_hidden()
    page.goto(f"{dispatcher.ready['admin']}/")
    expect(page.locator(".dot")).to_have_attribute("data-state", "live")
    expect(page.locator("#servers")).to_be_visible()
    page.close()
