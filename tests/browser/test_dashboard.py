"""What the dashboard shows is what the network says, and what it offers happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import publish
from tests.network import Hook, Network, until

SERVERS = 2

pytestmark = pytest.mark.timeout(180)


def shown(page: Page, selector: str) -> int:
    text = page.text_content(selector) or ""
    return int(re.sub(r"\D", "", text) or -1)


def test_the_numbers_on_the_page_are_those_of_the_interface(page: Page, lively: Network) -> None:
    def settled() -> bool:
        servers = lively.http.get("/v1/servers").json()["servers"]
        notified = sum(server["notified"] for server in servers)
        return notified == sum(server["matched"] for server in servers) > 0

    until("everything to be notified", settled)
    told = lively.http.get("/v1/servers").json()
    counted = ("forwarded", "matched", "notified")
    totals = {name: sum(server[name] for server in told["servers"]) for name in counted}
    totals["published"] = told["published"]
    for name, total in totals.items():
        expect(page.locator(f'[data-total="{name}"]')).to_have_text(f"{total:,}")
    for server in told["servers"]:
        row = page.locator(f'#servers tr[data-server="{server["id"]}"] td')
        expect(row.nth(1)).to_have_text(server["state"])
        expect(row.nth(2)).to_have_text(f"{server['subscriptions']:,}")
        expect(row.nth(3)).to_have_text(f"{server['lag']:,}")
        expect(row.nth(8)).to_have_text(f"{100 * server['hit_ratio']:.1f} %")
    expect(page.locator("#topics tbody tr")).to_have_count(1)
    before = totals["published"]
    publish(lively, [{"symbol": "KO", "price": 11}])
    expect(page.locator('[data-total="published"]')).to_have_text(f"{before + 1:,}")  # without a reload


def test_charts_are_drawn(page: Page) -> None:
    for chart in ("traffic", "ratios", "tuning"):
        expect(page.locator(f"#chart-{chart} .scatterlayer .trace").first).to_be_attached()


def test_a_publisher_places_no_link_on_the_map(page: Page, lively: Network) -> None:
    """Plotly makes links of tags in labels; a label shows the text that was published."""
    link = '<a href="https://evil.example/">sign in again</a>'

    def with_link(route: Route) -> None:
        answer = route.fetch()
        projection = answer.json()
        for axis in (projection["x"], projection["y"]):
            axis["attribute"] += link
            for stop in axis["stops"] or ():
                stop["label"] = link
        route.fulfill(response=answer, json=projection)

    page.route("**/projection?*", with_link)
    page.click("#tab-map")
    expect(page.locator("#chart-map")).to_contain_text("sign in again")
    assert page.locator("#chart-map a").count() == 0
    shown = page.evaluate("document.querySelector('#chart-map .ytick').textContent")
    assert shown == link
    page.unroute("**/projection?*")
    page.click("#tab-overview")


def test_the_slider_changes_the_rectangles_before_anything_is_applied(page: Page, lively: Network) -> None:
    def precise() -> bool:
        shown = [lively.http.get(f"/v1/servers/{name}/summary").json() for name in lively.servers]
        return all(topic["widenings"] == 0 for one in shown for topic in one["topics"].values())

    until("summaries to take the place of widenings", precise)
    page.click("#tab-map")
    rows = page.locator("#map-servers tbody tr")
    expect(rows).to_have_count(2)

    def rectangles() -> list[int]:
        return [int(row.get_attribute("data-rectangles") or -1) for row in rows.all()]

    until("all rectangles", lambda: sum(rectangles()) == 30)
    paths = page.evaluate("document.querySelector('#chart-map .js-fill')?.getAttribute('d') ?? ''")
    slider = page.locator("#map-precision")
    slider.focus()
    for _ in range(80):  # as somebody with a keyboard would
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#map-value")).to_contain_text("20 %")
    until("fewer rectangles", lambda: 2 <= sum(rectangles()) <= 8)
    expect(page.locator("#map-effect")).to_contain_text("% traffic")
    changed = page.evaluate("document.querySelector('#chart-map .js-fill')?.getAttribute('d') ?? ''")
    assert changed != paths
    assert lively.http.get("/v1/tuning").json()["precision"] == 1.0, "nothing is applied yet"
    page.click("#map-apply")
    until("it to be applied", lambda: lively.http.get("/v1/tuning").json()["precision"] == pytest.approx(0.2))
    page.click("#tab-overview")
    expect(page.locator("#precision")).to_have_text("20 %")
    expect(page.locator("#decisions tbody tr").first).to_contain_text("set by an operator")


def test_explain_names_the_false_positive(page: Page, lively: Network) -> None:
    lively.http.put("/v1/tuning", json={"mode": "fixed", "precision": 0.2})
    # Between two narrow rectangles: a coarse summary contains it, no subscription matches it.
    wanted = [
        (event, explained["false_positives"])
        for event in ({"symbol": "GE", "price": 10 * step + 6} for step in range(9))
        for explained in [lively.http.post("/v1/topics/stocks/explain", json={"event": event}).json()]
    ]
    event, wasted = next((event, names) for event, names in wanted if names)
    page.click("#tab-try")
    page.fill("#try-text", f'{{"symbol": "{event["symbol"]}", "price": {event["price"]}}}')
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    for name in wasted:
        card = page.locator(f'#try-result [data-server="{name}"]')
        expect(card).to_have_attribute("data-kind", "false-positive")
        expect(card).to_contain_text("false positive")
    expect(page.locator("#try-summary")).to_contain_text("No subscription matches")
    page.fill("#try-text", '{"symbol": "GE", "price": 11}')
    page.click("#try-form button[type=submit]")
    expect(page.locator('#try-result [data-kind="match"]')).to_contain_text('symbol == "GE"')


def test_an_event_that_is_no_event_is_refused_in_words(page: Page) -> None:
    page.click("#tab-try")
    page.fill("#try-text", '{"symbol": "GE", "price": "dear"}')
    page.click("#try-form button[type=submit]")
    expect(page.locator("#toast")).to_contain_text("price")


def test_pausing_stops_deliveries_and_resuming_brings_what_was_kept(
    page: Page, lively: Network, hook: Hook
) -> None:
    page.click("#tab-subscriptions")
    page.fill("#search", "ibm-3")
    page.keyboard.press("Enter")
    expect(page.locator("#subscription-table tbody tr")).to_have_count(1)
    page.click('[data-toggle="ibm-3"]')
    expect(page.locator('tr[data-subscription="ibm-3"]')).to_contain_text("paused")
    before = len(hook.at("/ibm"))
    publish(lively, [{"symbol": "IBM", "price": 31}, {"symbol": "IBM", "price": 41}])
    until("the other subscription's event", lambda: len(hook.at("/ibm")) > before)
    heard = b"".join(body for _, body in hook.at("/ibm")[before:])
    assert b"ibm-4" in heard
    assert b"ibm-3" not in heard
    page.click('[data-toggle="ibm-3"]')
    expect(page.locator('tr[data-subscription="ibm-3"]')).to_contain_text("active")
    until("what was kept", lambda: any(b"ibm-3" in body for _, body in hook.at("/ibm")[before:]))


def test_a_subscription_shows_its_counters_and_attempts(page: Page, lively: Network, hook: Hook) -> None:
    publish(lively, [{"symbol": "KO", "price": 51}])
    until("its delivery", lambda: any(b"ko-5" in body for _, body in hook.at("/ko")))
    page.click("#tab-subscriptions")
    page.fill("#search", "ko-5")
    page.keyboard.press("Enter")
    page.click('[data-open="ko-5"]')
    dialog = page.locator("#subscription-dialog")
    expect(dialog).to_contain_text("healthy")
    expect(dialog.locator("#attempts tbody tr").first).to_contain_text("delivered")
    told = lively.http.get("/v1/subscriptions/ko-5").json()["delivery"]
    matched = dialog.locator("dt", has_text=re.compile("^Matched$")).locator("xpath=following-sibling::dd[1]")
    expect(matched).to_have_text(str(told["matched"]))
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_advertisements_are_listed_and_dead_subscriptions_are_marked(page: Page, lively: Network) -> None:
    given = {"symbol": [{"not": "KO"}], "$others": "any"}
    body = {"topic": "stocks", "id": "not-ko", "advertisement": given}
    lively.http.post("/v1/advertisements", json=body).raise_for_status()
    try:
        page.click("#tab-advertisements")
        expect(page.locator('tr[data-advertisement="not-ko"]')).to_contain_text("wanted")
        page.click("#tab-subscriptions")
        page.check("#search-dead")
        expect(page.locator('[data-dead="ko-5"]')).to_be_visible()
        expect(page.locator('tr[data-subscription="ibm-3"]')).to_have_count(0)
    finally:
        lively.http.delete("/v1/advertisements/not-ko").raise_for_status()


def test_tabs_are_reached_by_the_keyboard(page: Page) -> None:
    page.focus("#tab-overview")
    for key, tab in [("ArrowRight", "map"), ("End", "try"), ("ArrowRight", "overview"), ("ArrowLeft", "try")]:
        page.keyboard.press(key)
        expect(page.locator(f"#tab-{tab}")).to_be_focused()
        expect(page.locator(f"#{tab}")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_its_width_in_both_themes(
    browser: Browser, lively: Network, theme: Literal["light", "dark"], width: int, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 850}, color_scheme=theme)
    page.goto(f"{lively.url}/")
    page.wait_for_selector('.dot[data-state="live"]')
    for tab in ("overview", "map", "subscriptions", "advertisements", "letters", "try"):
        page.click(f"#tab-{tab}")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, tab
    style = "getComputedStyle(document.body)"
    back, text = page.evaluate(f"[{style}.backgroundColor, {style}.color]")
    assert _brightness(back) > 200 if theme == "light" else _brightness(back) < 60
    assert abs(_brightness(back) - _brightness(text)) > 125
    page.screenshot(path=tmp_path / f"{theme}-{width}.png")
    page.close()


def _brightness(colour: str) -> float:
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_the_interface_is_shown_without_another_host_and_takes_a_key(
    browser: Browser, lively: Network
) -> None:
    elsewhere: list[str] = []
    complaints: list[str] = []
    docs = browser.new_page()
    docs.on("request", lambda request: elsewhere.append(request.url))
    docs.on("pageerror", lambda error: complaints.append(str(error)))
    docs.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    docs.goto(f"{lively.url}/docs")
    docs.locator("#operations-tag-subscriptions").click()
    expect(docs.locator("#operations-subscriptions-subscribe")).to_be_visible()
    docs.get_by_role("button", name="Authorize").first.click()
    expect(docs.locator(".auth-container input")).to_have_count(1)
    expect(docs.locator(".auth-container").first).to_contain_text("An API key")
    docs.close()
    assert [url for url in elsewhere if not url.startswith((lively.url, "data:", "blob:"))] == []
    assert complaints == []
