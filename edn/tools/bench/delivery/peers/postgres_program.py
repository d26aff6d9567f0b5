"""The programs of the PostgreSQL peer: `front` accepts events, `worker` delivers.

The front matches a request and fills the outbox in one statement and one synchronous commit. A worker claims
rows by SELECT … FOR UPDATE SKIP LOCKED, posts them grouped by address and deletes the claim.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import orjson
from aiohttp import web

from edn.tools.bench.delivery.peers.role import run_role, say
from edn.tools.bench.delivery.peers.sender import Entry, Sender

#: loops of a worker, each with a connection
LOOPS = 3
CLAIM = 10_000
#: seconds after which a loop looks for rows without a notification, and those that failed are due again
POLL_SECONDS = 1.0
RETRY_SECONDS = 5

PUBLISH = """
WITH event AS MATERIALIZED (
    SELECT nextval('event_ids') AS id, x, y, body
    FROM unnest($1::float8[], $2::float8[], $3::text[]) AS given(x, y, body)
), matched AS (
    INSERT INTO outbox (event, body, address, subscriptions)
    SELECT event.id, event.body, s.address, array_agg(s.id)
    FROM event JOIN subscriptions s
      ON box(point(s.lo_x, s.lo_y), point(s.hi_x, s.hi_y)) @> box(point(event.x, event.y))
     AND s.lo_x <= event.x AND event.x <= s.hi_x AND s.lo_y <= event.y AND event.y <= s.hi_y
    GROUP BY event.id, event.body, s.address
)
SELECT id::text FROM event
"""
CLAIM_ROWS = f"""
SELECT id, event, body, address, subscriptions FROM outbox
WHERE due <= now() ORDER BY id LIMIT {CLAIM} FOR UPDATE SKIP LOCKED
"""
DELETE = "DELETE FROM outbox WHERE id = ANY($1::bigint[])"
POSTPONE = f"UPDATE outbox SET due = now() + interval '{RETRY_SECONDS} s' WHERE id = ANY($1::bigint[])"


async def _front(settings: dict[str, Any]) -> None:
    connection = await asyncpg.connect(host=settings["socket"], user="bench", database="postgres")
    insert = await connection.prepare(PUBLISH)
    notify = await connection.prepare("SELECT pg_notify('outbox', '')")
    lock = asyncio.Lock()

    async def publish(request: web.Request) -> web.Response:
        given = orjson.loads(await request.read())
        events = given if isinstance(given, list) else [given]
        columns = [event["x"] for event in events], [event["y"] for event in events]
        bodies = [orjson.dumps(event).decode() for event in events]
        async with lock, connection.transaction():
            rows = await insert.fetch(*columns, bodies)
            await notify.fetch()
        return web.Response(
            status=202, body=orjson.dumps({"ids": [row[0] for row in rows]}), content_type="application/json"
        )

    app = web.Application()
    app.router.add_post("/events", publish)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    say({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"})


async def _worker(settings: dict[str, Any]) -> None:
    sender = Sender(settings["urls"], settings["secrets"])
    #: a notification wakes one loop that waits, or the next one that does
    wakes: asyncio.Queue[None] = asyncio.Queue(1)

    def on_notify(*_: object) -> None:
        if wakes.empty():
            wakes.put_nowait(None)

    listener = await asyncpg.connect(host=settings["socket"], user="bench", database="postgres")
    await listener.add_listener("outbox", on_notify)
    # The oldest rows are read by the index, also when the statistics are those of an empty table.
    planner = {"enable_seqscan": "off", "enable_sort": "off"}
    connections = [
        await asyncpg.connect(
            host=settings["socket"], user="bench", database="postgres", server_settings=planner
        )
        for _ in range(LOOPS)
    ]
    say({"ready": True})
    await asyncio.gather(*(_deliver(one, wakes, sender) for one in connections))


async def _deliver(connection: Any, wakes: asyncio.Queue[None], sender: Sender) -> None:
    claim, delete, postpone = [await connection.prepare(one) for one in (CLAIM_ROWS, DELETE, POSTPONE)]
    while True:
        async with connection.transaction():
            rows = await claim.fetch()
            if rows:
                done, failed = await _post(rows, sender)
                await delete.fetch(done)
                if failed:
                    await postpone.fetch(failed)
        if not rows:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await wakes.get()
            except TimeoutError:
                pass


async def _post(rows: list[Any], sender: Sender) -> tuple[list[int], list[int]]:
    """Posts rows by address; returns the ids of those that were accepted and of the others."""
    ids: dict[int, list[int]] = {}
    entries: dict[int, list[Entry]] = {}
    for row in rows:
        ids.setdefault(row["address"], []).append(row["id"])
        entry = str(row["event"]), orjson.loads(row["body"]), row["subscriptions"]
        entries.setdefault(row["address"], []).append(entry)
    accepted = await asyncio.gather(*(sender.post(address, some) for address, some in entries.items()))
    done: list[int] = []
    failed: list[int] = []
    for address, fine in zip(entries, accepted, strict=True):
        (done if fine else failed).extend(ids[address])
    return done, failed


if __name__ == "__main__":
    run_role({"front": _front, "worker": _worker})
