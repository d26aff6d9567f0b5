"""API keys: shown once, kept as digests, ended by revoking and by time; what is written down of them."""

from __future__ import annotations

import asyncio
import io
import json
import math
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

import dispatcher.app
import dispatcher.services
from dispatcher.auth import audit
from dispatcher.auth.caller import Need
from dispatcher.config import Settings
from edn.http.asgi import CLIENT, VIA
from edn.runtime.process import configure_logs, hide_secrets

SECRET = "s" * 24
Work = Callable[[httpx.AsyncClient, dispatcher.services.Services], Awaitable[None]]


def at_the_door(folder: Path, work: Work, **settings: Any) -> None:
    async def run() -> None:
        app = dispatcher.app.create_app(Settings(data=folder, secret=SECRET, **settings))
        transport = httpx.ASGITransport(app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
            app.router.lifespan_context(app),
        ):
            await work(http, app.state.services)

    asyncio.run(run())


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def make(http: httpx.AsyncClient, key: str = SECRET, **body: Any) -> httpx.Response:
    return await http.post(
        "/v1/keys", json={"name": "ann", "scopes": ["publish"], **body}, headers=bearer(key)
    )


async def opens(http: httpx.AsyncClient, key: str) -> int:
    return (await http.get("/v1/topics", headers=bearer(key))).status_code


def test_a_key_is_shown_once_and_kept_as_a_digest(tmp_path: Path) -> None:
    shown: list[str] = []

    async def work(http: httpx.AsyncClient, _: Any) -> None:
        made = await make(http, tenant="acme", quota={"events_per_second": 10})
        assert made.status_code == 201
        assert made.headers["cache-control"] == "no-store"
        body = made.json()
        shown.append(body.pop("key"))
        assert shown[0].startswith(f"edn_{body['id']}_")
        assert (body["name"], body["tenant"], body["scopes"]) == ("ann", "acme", ["publish"])
        assert body["quota"] == {"events_per_second": 10.0}
        one = await http.get(made.headers["location"], headers=bearer(SECRET))
        listed = await http.get("/v1/keys", headers=bearer(SECRET))
        assert one.json() == body
        assert listed.json() == {"keys": [body]}
        assert await opens(http, shown[0]) == 200

    at_the_door(tmp_path, work)
    secret_part = shown[0].split("_", 2)[2].encode()
    for file in tmp_path.iterdir():
        assert secret_part not in file.read_bytes(), file


def test_a_key_lives_through_a_restart_and_ends_when_it_is_revoked(tmp_path: Path) -> None:
    key: dict[str, str] = {}

    async def begin(http: httpx.AsyncClient, _: Any) -> None:
        key.update((await make(http)).json())

    async def end(http: httpx.AsyncClient, _: Any) -> None:
        assert await opens(http, key["key"]) == 200
        gone = await http.delete(f"/v1/keys/{key['id']}", headers=bearer(SECRET))
        assert gone.status_code == 204
        assert await opens(http, key["key"]) == 401
        again = await http.delete(f"/v1/keys/{key['id']}", headers=bearer(SECRET))
        assert again.status_code == 404

    at_the_door(tmp_path, begin)
    at_the_door(tmp_path, end)


def test_a_key_ends_with_its_time(tmp_path: Path) -> None:
    async def work(http: httpx.AsyncClient, door: dispatcher.services.Services) -> None:
        key = (await make(http, expires="PT10S")).json()["key"]
        now = door.keys.now()
        assert await opens(http, key) == 200
        door.keys.now = lambda: now + 10_000_001
        assert await opens(http, key) == 401

    at_the_door(tmp_path, work)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"scopes": []}, 422),
        ({"scopes": ["everything"]}, 422),
        ({"tenant": "a/b"}, 422),
        ({"tenant": "a" * 65}, 422),
        ({"name": "a name"}, 422),
        ({"expires": "yesterday"}, 422),
        ({"quota": {"events_per_second": 0}}, 422),
        ({"quota": {"elephants": 1}}, 422),
        ({"secret": "mine"}, 422),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(tmp_path: Path, body: dict[str, Any], status: int) -> None:
    async def work(http: httpx.AsyncClient, _: Any) -> None:
        assert (await make(http, **body)).status_code == status

    at_the_door(tmp_path, work)


def test_an_administrator_makes_keys_of_their_own_tenant_only(tmp_path: Path) -> None:
    async def work(http: httpx.AsyncClient, _: Any) -> None:
        boss = (await make(http, tenant="acme", scopes=["admin"])).json()
        outsider = (await make(http, tenant="other")).json()
        for tenant, status in (("acme", 201), ("other", 403), ("", 403)):
            assert (await make(http, boss["key"], tenant=tenant)).status_code == status
        for method in ("GET", "DELETE"):
            answer = await http.request(method, f"/v1/keys/{outsider['id']}", headers=bearer(boss["key"]))
            assert answer.status_code == 404

    at_the_door(tmp_path, work)


def test_tenants_have_names_of_their_own(tmp_path: Path) -> None:
    """Two tenants and the operator, each with a topic of one name: each publishes to its own."""

    async def work(http: httpx.AsyncClient, door: dispatcher.services.Services) -> None:
        keys = {"": SECRET}
        for tenant in ("acme", "other"):
            keys[tenant] = (await make(http, tenant=tenant, scopes=["admin"])).json()["key"]
        for number, (tenant, key) in enumerate(keys.items()):
            attributes = {f"price{number}": "number"}
            schema = {"attributes": attributes, "closed": True}
            put = await http.put("/v1/topics/stocks", json=schema, headers=bearer(key))
            assert put.status_code == 201, tenant
            published = await http.post(
                "/v1/topics/stocks/events", json={f"price{number}": 1}, headers=bearer(key)
            )
            assert published.status_code == 202
            strange = await http.post("/v1/topics/stocks/events", json={"price7": 1}, headers=bearer(key))
            assert strange.status_code == 422
        assert len({door.topics.get("stocks", tenant).uid for tenant in keys}) == 3
        gone = await http.delete("/v1/topics/stocks", headers=bearer(keys["acme"]))
        assert gone.status_code == 204
        assert (await http.get("/v1/topics/stocks", headers=bearer(keys["acme"]))).status_code == 404
        for tenant in ("", "other"):
            assert (await http.get("/v1/topics/stocks", headers=bearer(keys[tenant]))).status_code == 200

    at_the_door(tmp_path, work)


def test_the_audit_tells_who_did_what_and_no_secret(tmp_path: Path) -> None:
    made: dict[str, str] = {}

    async def work(http: httpx.AsyncClient, _: Any) -> None:
        made.update((await make(http, scopes=["admin"])).json())
        attributes = {"attributes": {"price": "number"}}
        await http.put("/v1/topics/stocks?note=hidden", json=attributes, headers=bearer(made["key"]))
        await http.get("/v1/topics", headers=bearer(made["key"]))
        await http.get("/v1/topics", headers=bearer(made["key"] + "x"))
        await http.post("/v1/topics/stocks/events", json={"price": 1}, headers=bearer(made["key"]))
        await http.post("/v1/topics/stocks/events", json={"price": 1})

    at_the_door(tmp_path, work)
    file = tmp_path / audit.FILE
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    seen = [(one["what"], one["method"], one["path"], one.get("key"), one["status"]) for one in lines]
    assert seen == [
        ("called", "POST", "/v1/keys", "", 201),
        ("called", "PUT", "/v1/topics/stocks", made["id"], 201),
        ("refused", "GET", "/v1/topics", None, 401),
        ("refused", "POST", "/v1/topics/stocks/events", None, 401),
    ]
    assert made["key"].split("_", 2)[2] not in file.read_text()
    assert SECRET not in file.read_text()
    assert "hidden" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_who_knocks_often_does_not_fill_the_disk(tmp_path: Path) -> None:
    began = time.monotonic()

    async def work(http: httpx.AsyncClient, _: Any) -> None:
        for _ in range(10 * audit.REFUSALS):
            await http.get("/v1/topics")

    at_the_door(tmp_path, work)
    seconds = math.ceil(time.monotonic() - began) + 1  # the first and the last of them are not whole
    # And a line a second that says how many more there were.
    assert len((tmp_path / audit.FILE).read_text().splitlines()) <= (audit.REFUSALS + 1) * seconds


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("edn_0123456789ab_s3cr-t_x is wrong", "edn_0123456789ab_… is wrong"),
        ("secret=whsec_YWJj, more", "secret=whsec_… more"),
        ("Authorization: Bearer abc", "Authorization: Bearer …"),
        ("nothing of the kind", "nothing of the kind"),
    ],
)
def test_what_looks_like_a_secret_is_blotted_out_of_log_lines(line: str, shown: str) -> None:
    assert hide_secrets(None, "info", line) == shown


def test_secrets_are_blotted_out_however_deep_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    configure_logs()
    try:
        structlog.get_logger().info(
            "asked", headers={"authorization": "Bearer s3cret"}, keys=["whsec_s3cret"]
        )
    finally:
        structlog.reset_defaults()
    line = json.loads(said.getvalue())
    assert line["headers"] == {"authorization": "Bearer …"}
    assert line["keys"] == ["whsec_…"]


def test_a_key_makes_none_that_has_more_than_itself(tmp_path: Path) -> None:
    """Tenant, quota and expiry of the maker are inherited where nothing is said, and are the most."""
    limits = {"requests_per_second": 500.0, "subscriptions": 3, "predicates": 9, "body": 4000, "streams": 2}

    async def work(http: httpx.AsyncClient, door: dispatcher.services.Services) -> None:
        made = await make(http, scopes=["admin"], tenant="acme", quota=limits, expires="PT1H")
        maker = made.json()
        plain = await make(http, maker["key"], scopes=["admin"])
        assert plain.status_code == 201, plain.text
        for name in ("tenant", "quota", "expires"):
            assert plain.json()[name] == maker[name], name
        grandchild = (await make(http, plain.json()["key"])).json()
        assert (grandchild["quota"], grandchild["expires"]) == (maker["quota"], maker["expires"])
        pools = door.keys.get(grandchild["id"]).quota.pools
        assert [(pool.key, pool.streams) for pool in pools] == [(plain.json()["id"], 2), (maker["id"], 2)]
        fewer = await make(http, maker["key"], quota={"subscriptions": 1}, expires="PT1M")
        assert fewer.json()["quota"] == {**limits, "subscriptions": 1}
        assert fewer.json()["expires"] < maker["expires"]
        for name, value in limits.items():
            more = await make(http, maker["key"], quota={name: value + 1})
            assert more.status_code == 403, name
            assert more.json()["errors"] == [{"pointer": f"/quota/{name}"}] or name in more.text
        for body in ({"expires": "PT2H"}, {"tenant": ""}, {"tenant": "other"}):
            assert (await make(http, maker["key"], **body)).status_code == 403, body
        assert (await make(http, maker["key"], scopes=["metrics"])).status_code == 422
        # An operator's key with limits has no unlimited ones either.
        operator = (await make(http, scopes=["admin"], quota={"body": 4000}, expires="PT1H")).json()
        child = (await make(http, operator["key"], tenant="other")).json()
        assert (child["quota"], child["expires"]) == ({"body": 4000}, operator["expires"])

    at_the_door(tmp_path, work)


def test_a_key_for_metrics_opens_nothing_else(tmp_path: Path) -> None:
    async def work(http: httpx.AsyncClient, door: dispatcher.services.Services) -> None:
        key = (await make(http, scopes=["metrics"])).json()["key"]
        assert (await http.get("/metrics", headers=bearer(key))).status_code == 200
        for need in Need:
            if need not in (Need.PUBLIC, Need.METRICS):
                assert not door.guard.identify(bearer(key)["authorization"].encode()).may(need), need
        for path in ("/v1/topics", "/v1/subscriptions", "/v1/keys", "/v1/servers", "/nothing"):
            assert (await http.get(path, headers=bearer(key))).status_code == 403, path
        for scopes in (["publish"], ["subscribe"]):
            other = (await make(http, scopes=scopes)).json()["key"]
            assert (await http.get("/metrics", headers=bearer(other))).status_code == 403
        tenants = (await make(http, scopes=["admin"], tenant="acme")).json()["key"]
        assert (await http.get("/metrics", headers=bearer(tenants))).status_code == 403
        assert (await http.get("/metrics")).status_code == 401

    at_the_door(tmp_path, work)


def test_an_address_that_guesses_keys_is_slowed_down_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "WRONG_KEYS", 0.001)
    monkeypatch.setattr(audit, "WRONG_AT_ONCE", 5.0)

    async def work(http: httpx.AsyncClient, _: Any) -> None:
        said = [await opens(http, f"edn_000000000000_{number}") for number in range(8)]
        assert said[:5] == [401] * 5
        assert said[-2:] == [429] * 2
        assert await opens(http, SECRET) == 200
        elsewhere = {VIA: SECRET, CLIENT: "10.0.0.8"}  # as a server passes on a call of its client
        wrong = await http.get("/v1/topics", headers=bearer("edn_000000000000_x") | elsewhere)
        assert wrong.status_code == 401

    at_the_door(tmp_path, work)
