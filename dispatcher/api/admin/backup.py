"""Routes of backups: begin, download the databases, end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Response
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, StreamingResponse

from dispatcher.auth.caller import Need, needs
from dispatcher.servers.backup_gate import BackupGate
from dispatcher.servers.client import ServerClient
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store.event_log import Log
from edn.errors import Conflict, NotFound, Unavailable
from edn.http.control_client import ControlAnswer

_DATABASE = "application/vnd.sqlite3"
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "an SQLite database",
        "content": {_DATABASE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def routes(log: Log, servers: ServerRegistry, calls: ServerClient, backup_gate: BackupGate) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["backup"])

    def continue_backup() -> None:
        if not backup_gate.active:
            raise Conflict("no backup has begun; begin one first")
        backup_gate.extend()

    @router.post("/backup/begin", status_code=204)
    @needs(Need.OPERATOR)
    async def begin() -> None:
        """Begin a backup: suspend truncation, migrations and hand-over until its end, or for ten minutes."""
        await backup_gate.begin()

    @router.post("/backup/end", status_code=204)
    @needs(Need.OPERATOR)
    async def end() -> None:
        """End a backup: resume truncation, migrations and hand-over."""
        backup_gate.end()

    @router.get("/backup", response_class=Response, responses=_CONTENT)
    @needs(Need.OPERATOR)
    async def dispatcher() -> FileResponse:
        """Download the dispatcher's database, after those of all servers."""
        continue_backup()
        target = await log.backup()
        return FileResponse(target, media_type=_DATABASE, background=BackgroundTask(target.unlink))

    @router.get("/servers/{id}/backup", response_class=Response, responses=_CONTENT)
    @needs(Need.OPERATOR)
    async def server(id: str) -> StreamingResponse:
        """Download a server's database."""
        continue_backup()
        if servers.get(id) is None:
            raise NotFound(f'server "{id[:80]}" does not exist')
        response = await calls.fetch(id, "/internal/backup")
        if response.status_code != 200:
            await response.aclose()
            raise Unavailable(f"server {id} answered {response.status_code}", retry_after=2)
        return StreamingResponse(_chunks(response), media_type=_DATABASE)

    return router


async def _chunks(response: ControlAnswer) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(response):
        async for chunk in response.aiter_bytes():
            yield chunk
