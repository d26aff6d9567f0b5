"""The programs of the Redis peer: `front` accepts events, `worker` runs the jobs of arq.

A request is one job. The worker matches it with numpy and posts once per address; an address that fails
becomes a job of its own, later.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import orjson
from aiohttp import web
from arq import Worker, create_pool, func
from arq.connections import ArqRedis, RedisSettings

from edn.tools.bench.delivery.peers.role import run_role, say
from edn.tools.bench.delivery.peers.sender import Entry, Sender

JOBS = 16
POLL_SECONDS = 0.01
JOB_SECONDS = 30
RETRY_SECONDS = 5


async def _pool(socket: str) -> ArqRedis:
    return await create_pool(
        RedisSettings(unix_socket_path=socket), job_serializer=orjson.dumps, job_deserializer=orjson.loads
    )


async def _front(settings: dict[str, Any]) -> None:
    pool = await _pool(settings["socket"])

    async def publish(request: web.Request) -> web.Response:
        given = orjson.loads(await request.read())
        events = given if isinstance(given, list) else [given]
        last = await pool.incrby("event-ids", len(events))
        ids = [str(number) for number in range(last - len(events) + 1, last + 1)]
        await pool.enqueue_job("deliver", ids, events)
        return web.Response(status=202, body=orjson.dumps({"ids": ids}), content_type="application/json")

    app = web.Application()
    app.router.add_post("/events", publish)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    say({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"})


class _Jobs:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._sender = Sender(settings["urls"], settings["secrets"])
        bounds = (np.array(settings[name]) for name in ("lo_x", "hi_x", "lo_y", "hi_y"))
        self._lo_x, self._hi_x, self._lo_y, self._hi_y = bounds
        self._owners = np.array(settings["owners"])

    async def deliver(self, context: dict[str, Any], ids: list[str], events: list[dict[str, float]]) -> None:
        entries: dict[int, list[Entry]] = {}
        for id, event in zip(ids, events, strict=True):
            x, y = event["x"], event["y"]
            inside = (self._lo_x <= x) & (x <= self._hi_x) & (self._lo_y <= y) & (y <= self._hi_y)
            matched = np.flatnonzero(inside)
            found: dict[int, list[int]] = {}
            for number, owner in zip(matched.tolist(), self._owners[matched].tolist(), strict=True):
                found.setdefault(owner, []).append(number)
            for owner, numbers in found.items():
                entries.setdefault(owner, []).append((id, event, numbers))
        accepted = await asyncio.gather(
            *(self._sender.post(address, some) for address, some in entries.items())
        )
        for (address, some), fine in zip(entries.items(), accepted, strict=True):
            if not fine:
                await self._retry(context, address, some)

    async def again(self, context: dict[str, Any], address: int, entries: list[Entry]) -> None:
        """Posts what failed before."""
        if not await self._sender.post(address, entries):
            await self._retry(context, address, entries)

    @staticmethod
    async def _retry(context: dict[str, Any], address: int, entries: list[Entry]) -> None:
        await context["redis"].enqueue_job("again", address, entries, _defer_by=RETRY_SECONDS)


async def _worker(settings: dict[str, Any]) -> None:
    jobs = _Jobs(settings)
    worker = Worker(
        [func(jobs.deliver, name="deliver"), func(jobs.again, name="again")],
        redis_pool=await _pool(settings["socket"]),
        max_jobs=JOBS,
        poll_delay=POLL_SECONDS,
        job_timeout=JOB_SECONDS,
        keep_result=0,
        handle_signals=False,
        job_serializer=orjson.dumps,
        job_deserializer=orjson.loads,
    )
    say({"ready": True})
    await worker.async_run()


if __name__ == "__main__":
    run_role({"front": _front, "worker": _worker})
