"""Requests that a foreign web page can make a browser send: an open dispatcher refuses them all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

import dispatcher.app
from dispatcher.auth import browsers
from dispatcher.config import Settings
from edn.errors import Forbidden

SECRET = "s" * 24
ENVELOPE = (
    '<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body>'
    '<e:EnumerateTopics xmlns:e="urn:edn"/></s:Body></s:Envelope>'
)

OURS = [
    "127.0.0.1:8080",
    "127.0.0.1",
    "127.8.9.10:1",
    "[::1]:8080",
    "localhost",
    "LOCALHOST:8080",
    "dev.test:80",
]
FOREIGN = [
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "10.0.0.1",
]
FOREIGN += ["[::2]", "0.0.0.0", "localhost@evil.example", "::1", "[::1", "127.0.0.1:x"]


def check(host: str, *, kind: str = "http", open: bool = True, **fields: str) -> None:
    named = {"host": host, **{name.replace("_", "-"): value for name, value in fields.items()}}
    scope = {
        "type": kind,
        "method": "GET",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }
    browsers.check(scope, open=open, public=False, hosts=frozenset({"dev.test"}))


@pytest.mark.parametrize("host", OURS)
def test_a_loopback_host_and_its_own_origin_pass(host: str) -> None:
    check(host)
    check(host, origin=f"http://{host}")
    check(host, origin=f"http://{host.lower()}", kind="websocket")
    check(host, origin=f"http://{host}", sec_fetch_site="same-origin")


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_refused_in_open_mode(host: str) -> None:
    with pytest.raises(Forbidden, match="Host must be a loopback address"):
        check(host)
    check(host, open=False)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "file://",
        "http://127.0.0.1:3000",
        "http://localhost:8080",
        "http://[",
    ],
)
@pytest.mark.parametrize(("kind", "open"), [("http", True), ("websocket", True), ("websocket", False)])
def test_a_foreign_origin_is_refused(origin: str, kind: str, open: bool) -> None:
    with pytest.raises(Forbidden, match="Origin must be"):
        check("127.0.0.1:8080", origin=origin, kind=kind, open=open)


def test_default_ports_need_not_be_said() -> None:
    check("dev.test", origin="https://dev.test", kind="websocket", open=False)
    check("dev.test:443", origin="https://dev.test", kind="websocket", open=False)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_foreign_page_embeds_is_refused(site: str) -> None:
    """Such a request has no Origin; reading a stream from an id on changes something."""
    with pytest.raises(Forbidden, match="pages of other sites"):
        check("127.0.0.1:8080", sec_fetch_site=site, sec_fetch_mode="no-cors")
    with pytest.raises(Forbidden, match="pages of other sites"):
        check("127.0.0.1:8080", sec_fetch_site=site, sec_fetch_mode="navigate")


#: what a page can send without asking first
SIMPLE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "subscribe over SOAP": ("POST", "/soap", {"content": ENVELOPE}),
    "publish": ("POST", "/v1/topics/t/events", {"content": "{}"}),
    "drain": ("POST", "/v1/servers/s1/drain", {}),
    "back up": ("POST", "/v1/backup/begin", {}),
    "subscribe": ("POST", "/v1/subscriptions", {"content": '{"topic": "t"}'}),
    "make a key": ("POST", "/v1/keys", {"content": '{"name": "a", "scopes": ["admin"]}'}),
    "read": ("GET", "/v1/topics", {}),
    "read metrics": ("GET", "/metrics", {}),
}


@pytest.mark.parametrize("name", SIMPLE)
def test_an_open_door_answers_no_foreign_page(tmp_path: Path, name: str) -> None:
    method, path, more = SIMPLE[name]

    async def run() -> None:
        app = dispatcher.app.create_app(Settings(data=tmp_path, secret=SECRET, open=True))
        async with (
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8080") as http,
            app.router.lifespan_context(app),
        ):
            foreign = {"origin": "http://evil.example", "content-type": "text/plain"}
            assert (await http.request(method, path, headers=foreign, **more)).status_code == 403
            rebound = {"host": "evil.example:8080", "origin": "http://evil.example:8080"}
            assert (await http.request(method, path, headers=rebound, **more)).status_code == 403
            own = {"origin": "http://localhost:8080"}
            assert (await http.request(method, path, headers=own, **more)).status_code != 403
            assert (await http.request(method, path, **more)).status_code != 403
            refused = (tmp_path / "audit.jsonl").read_text()
            assert refused.count('"refused"') == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    "given", ["text/plain", "", "application/xml", "application/x-www-form-urlencoded", "text/xmlx", None]
)
def test_soap_takes_its_two_media_types_only(tmp_path: Path, given: str | None) -> None:
    async def run() -> None:
        app = dispatcher.app.create_app(Settings(data=tmp_path, secret=SECRET, open=True))
        async with (
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
            app.router.lifespan_context(app),
        ):
            fields = {} if given is None else {"content-type": given}
            assert (await http.post("/soap", content=ENVELOPE, headers=fields)).status_code == 415
            for taken in ("text/xml", "Application/SOAP+xml; charset=utf-8"):
                answer = await http.post("/soap", content=ENVELOPE, headers={"content-type": taken})
                assert answer.status_code in (200, 400, 500)
                assert "Envelope" in answer.text

    asyncio.run(run())
