"""The dashboard of a network that wants keys: it asks, says what is wrong with one, shows what it may see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from edn.client import Client
from tests.network import Hook, Network

SERVERS = 1
LOCKED = True
TENANTS = ("acme", "bolt")

pytestmark = pytest.mark.timeout(180)


def new_key(network: Network, name: str, *scopes: str, tenant: str = "") -> str:
    with Client(network.url, key=network.secret) as operator:
        made = operator.create_key(name, scopes, tenant=tenant).key
    assert made is not None
    return made


@pytest.fixture(scope="module")
def keys(network: Network, hook: Hook) -> dict[str, str]:
    """One of each tenant, which has a topic and a subscription; and one of an operator."""
    made = {name: new_key(network, f"boss-of-{name}", "admin", tenant=name) for name in TENANTS}
    for name, key in made.items():
        with Client(network.url, key=key) as client:
            client.create_topic(f"topic-of-{name}", {"price": "number"})
            client.subscribe(f"topic-of-{name}", "price > 1", url=hook.url(f"/{name}"), id=f"sub-of-{name}")
            client.publish(f"topic-of-{name}", {"price": 2})
    return {**made, "operator": new_key(network, "operator", "admin")}


@pytest.fixture
def page(browser: Browser, network: Network) -> Iterator[Page]:
    """A tab of its own, so that no key is left from another test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.goto(f"{network.url}/")
    yield opened
    context.close()


def enter(page: Page, key: str) -> None:
    """As somebody with a keyboard would: the dialog has the focus, and Enter uses what was typed."""
    expect(page.locator("#key-input")).to_be_focused()
    page.keyboard.type(key)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def test_the_page_asks_for_a_key_and_works_with_it(
    page: Page, network: Network, keys: dict[str, str]
) -> None:
    expect(page.locator("#key-dialog")).to_be_visible()
    expect(page.locator("#status-text")).to_have_text("API key required")
    expect(page.locator("#key-refusal")).to_be_hidden()
    expect(page.locator("#key-forget")).to_be_hidden()
    enter(page, keys["operator"])
    expect(page.locator(".dot")).to_have_attribute("data-state", "live")
    expect(page.locator("#key-dialog")).to_be_hidden()
    published = network.http.get("/v1/servers").json()["published"]
    expect(page.locator('[data-total="published"]')).to_have_text(f"{published:,}")
    page.reload()
    expect(page.locator(".dot")).to_have_attribute("data-state", "live")  # the tab still has it
    page.click("#key-button")
    with page.expect_navigation():
        page.click("#key-forget")
    expect(page.locator("#status-text")).to_have_text("API key required")


def test_a_wrong_key_is_refused_in_words(page: Page, keys: dict[str, str]) -> None:
    enter(page, keys["acme"] + "x")
    expect(page.locator("#key-refusal")).to_have_text("401: unknown API key: it is mistyped or was revoked")
    expect(page.locator("#status-text")).to_have_text("API key required")
    page.keyboard.press("Escape")
    expect(page.locator("#key-dialog")).to_be_hidden()
    page.click("#key-button")
    enter(page, keys["operator"])
    expect(page.locator(".dot")).to_have_attribute("data-state", "live")


def test_a_tenant_sees_its_own_and_nothing_else(page: Page, network: Network, keys: dict[str, str]) -> None:
    asked: list[Request] = []
    page.on("requestfinished", lambda request: asked.append(request))
    # What the page asked before it had the key is gone when the page is loaded anew.
    page.once("framenavigated", lambda _: asked.clear())
    enter(page, keys["acme"])
    expect(page.locator("#status-text")).to_contain_text("topics and subscriptions of this key's tenant")
    expect(page.locator("#topics tbody tr")).to_have_count(1)
    expect(page.locator("#topics tbody tr")).to_contain_text("topic-of-acme")
    for operators in (".tiles", "#servers", "#tab-map", "#decisions"):
        expect(page.locator(operators)).to_be_hidden()
    page.focus("#tab-overview")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-subscriptions")).to_be_focused()
    rows = page.locator("#subscription-table tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("sub-of-acme")
    page.fill("#search", "sub-of-bolt")
    page.keyboard.press("Enter")
    expect(rows).to_contain_text("No subscriptions found.")
    page.click("#tab-letters")
    letters = page.locator("#letter-table tbody")
    expect(letters).to_contain_text("Enter a subscription")
    page.fill("#letters-subscription", "sub-of-acme")
    page.keyboard.press("Enter")
    expect(letters).to_contain_text("No dead letters.")
    page.click("#tab-try")
    page.fill("#try-text", '{"price": 3}')
    page.click("#try-form button[type=submit]")
    expect(page.locator("#try-result")).to_contain_text("sub-of-acme")
    calls = [request for request in asked if "/v1/" in request.url]
    answers = [response for request in calls if (response := request.response()) is not None]
    refused = [answer for answer in answers if answer.status == 403]
    assert [answer.url for answer in refused] == [f"{network.url}/v1/live"], "and it is not asked for again"
    assert len(answers) >= 5
    assert not any("bolt" in answer.text() for answer in answers)


def test_a_key_that_is_revoked_while_the_page_is_open_is_asked_for_anew(page: Page, network: Network) -> None:
    key = new_key(network, "for-a-while", "admin")
    enter(page, key)
    expect(page.locator(".dot")).to_have_attribute("data-state", "live")
    with Client(network.url, key=network.secret) as operator:
        operator.revoke_key(key.split("_")[1])
    page.click("#tab-subscriptions")
    expect(page.locator("#key-refusal")).to_contain_text("revoked")
    expect(page.locator("#toast")).to_be_hidden()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 400)])
def test_the_dialog_fits_its_width(
    browser: Browser, network: Network, theme: Literal["light", "dark"], width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 850}, color_scheme=theme)
    page = context.new_page()
    page.goto(f"{network.url}/")
    enter(page, "edn_wrong_key")
    expect(page.locator("#key-refusal")).to_be_visible()
    box = page.locator("#key-dialog").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    for button in page.locator("#key-dialog button").all():
        inside = button.bounding_box()
        assert inside is not None
        assert inside["x"] + inside["width"] <= box["x"] + box["width"]
    context.close()
