"""What a load balancer is told: whether this dispatcher may be sent events."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
from corekit import make_ready

from dispatcher.app import create_app
from dispatcher.config import Settings
from dispatcher.services import Services
from edn.runtime.disk import Shortage


def test_it_is_ready_with_a_server_and_room_for_the_log(tmp_path: Path) -> None:
    async def run() -> None:
        app = create_app(Settings(data=tmp_path, secret="s" * 16, open=True))
        door: Services = app.state.services
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
        ):
            alone = await http.get("/readyz")
            assert (alone.status_code, alone.json()["detail"]) == (503, "no server is ready")
            make_ready(door, "s1")
            ready = await http.get("/readyz")
            assert (ready.status_code, ready.json()) == (200, {"status": "ready", "servers": 1})
            door.upkeep.shortage = Shortage(1000, 2000)
            full = await http.get("/readyz")
            assert full.status_code == 503
            assert "disk: 1000 bytes free, 2000 needed" in full.json()["detail"]
            assert full.headers["retry-after"]
            assert (await http.get("/livez")).status_code == 200

    asyncio.run(run())
