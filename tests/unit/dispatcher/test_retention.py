"""Bytes of events that stay available, per tenant: counted exactly, refused beyond the limit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from dispatcher.app import create_app
from dispatcher.config import Settings
from dispatcher.services import Services
from dispatcher.store import retention

SECRET = "s" * 24
LIMIT = 20_000


def scanned(door: Services) -> dict[str, int]:
    found: dict[str, int] = {}
    for tenant, size in door.log._reader.execute(
        "SELECT t.tenant, length(r.payload) FROM records r JOIN topics t ON t.uid = r.topic"
        " WHERE r.expires IS NOT NULL"
    ):
        found[tenant] = found.get(tenant, 0) + size
    return found


def counted(door: Services) -> dict[str, int]:
    rows = door.log._reader.execute("SELECT tenant, bytes FROM retained WHERE bytes != 0")
    return dict(rows.fetchall())


def test_publishing_with_availability_is_refused_at_the_limit_of_a_tenant(tmp_path: Path) -> None:
    async def run() -> None:
        app = create_app(Settings(data=tmp_path, secret=SECRET, retained_bytes=LIMIT))
        door: Services = app.state.services
        operator = {"authorization": f"Bearer {SECRET}"}
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http,
        ):

            async def key(tenant: str, **quota: Any) -> dict[str, str]:
                body = {"name": "k", "tenant": tenant, "scopes": ["admin", "publish"], "quota": quota}
                made = await http.post("/v1/keys", json=body, headers=operator)
                assert made.status_code == 201, made.text
                return {"authorization": f"Bearer {made.json()['key']}"}

            async def publish(who: dict[str, str], n: int, lasting: str | None = "forever") -> httpx.Response:
                event = {"$id": f"e{n}", "s": "x" * 3000}
                if lasting:
                    event["$availability"] = lasting
                return await http.post("/v1/topics/t/events", json=event, headers=who)

            acme, other = await key("acme"), await key("other")
            small = await key("acme", retained_bytes=1000)
            for who in (acme, other):
                body = {"attributes": {"s": "string"}}
                assert (await http.put("/v1/topics/t", json=body, headers=who)).status_code == 201
            # The key's own quota is less than its tenant's.
            refused = await publish(small, 0)
            assert refused.status_code == 429
            assert "retained_bytes" in refused.json()["detail"]
            assert (await publish(small, 0, None)).status_code == 202
            accepted = 0
            while (answer := await publish(acme, accepted + 1)).status_code == 202:
                accepted += 1
                assert counted(door) == scanned(door)
            assert accepted == LIMIT // 3100
            assert answer.status_code == 429
            assert answer.headers["retry-after"]
            assert retention.used(door.log._reader, "acme") <= LIMIT
            # A repeat of an accepted event is answered as the first time; others go on.
            assert (await publish(acme, 1)).status_code == 202
            assert (await publish(acme, 100, None)).status_code == 202
            assert (await publish(other, 1)).status_code == 202
            assert counted(door) == scanned(door)
            # Room returns with what goes.
            deleted = await http.delete("/v1/topics/t", headers=acme)
            assert deleted.status_code in (200, 204), deleted.text
            assert counted(door) == scanned(door)
            assert "acme" not in counted(door)

    asyncio.run(run())


def test_expired_events_leave_the_count_when_they_leave_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.servers.upkeep.TRUNCATE_SECONDS", 3600.0)

    async def run() -> None:
        app = create_app(Settings(data=tmp_path, secret=SECRET, open=True))
        door: Services = app.state.services
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http,
        ):
            await http.put("/v1/topics/t", json={"attributes": {"s": "string"}})
            for lasting in (0.001, "forever", 0.001):
                body: dict[str, Any] = {"s": "x" * 500, "$availability": lasting}
                assert (await http.post("/v1/topics/t/events", json=body)).status_code == 202
            await http.post("/v1/topics/t/events", json={"s": "last"})
            before = counted(door)
            log = door.log
            await asyncio.sleep(0.01)  # the log's clock passes what expires
            await log.truncate(log.head, 0)
            assert counted(door) == scanned(door)
            assert 0 < counted(door)[""] < before[""]

    asyncio.run(run())
