"""The routes of a backup: it begins, its parts are fetched, it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
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
from edn.runtime.process import copy_in

_DATABASE = "application/vnd.sqlite3"
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "an SQLite database",
        "content": {_DATABASE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def routes(
    data: Path, log: Log, members: ServerRegistry, calls: ServerClient, backup_gate: BackupGate
) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["backup"])

    def under_way() -> None:
        if not backup_gate.active:
            raise Conflict("no backup is under way: POST /v1/backup/begin comes first")
        backup_gate.extend()

    @router.post("/backup/begin", status_code=204)
    @needs(Need.OPERATOR)
    async def begin() -> None:
        """From now on nothing is truncated, moved or settled; for ten minutes, or until the end."""
        await backup_gate.begin()

    @router.post("/backup/end", status_code=204)
    @needs(Need.OPERATOR)
    async def end() -> None:
        """Everything goes on."""
        backup_gate.end()

    @router.get("/backup", response_class=Response, responses=_CONTENT)
    @needs(Need.OPERATOR)
    async def dispatcher() -> FileResponse:
        """The dispatcher's data, after those of all servers."""
        under_way()
        target = copy_in(data)
        await log.backup(target)
        return FileResponse(target, media_type=_DATABASE, background=BackgroundTask(target.unlink))

    @router.get("/servers/{id}/backup", response_class=Response, responses=_CONTENT)
    @needs(Need.OPERATOR)
    async def server(id: str) -> StreamingResponse:
        """A server's data."""
        under_way()
        member = members.get(id)
        if member is None:
            raise NotFound(f'no server "{id[:80]}"')
        answer = await calls.fetch(id, "/internal/backup")
        if answer.status_code != 200:
            await answer.aclose()
            raise Unavailable(f"server {id} answered {answer.status_code}", retry_after=2)
        return StreamingResponse(_passed_on(answer), media_type=_DATABASE)

    return router


async def _passed_on(answer: ControlAnswer) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_bytes():
            yield chunk
    finally:
        await answer.aclose()
