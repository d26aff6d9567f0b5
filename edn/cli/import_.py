"""`edn import`: subscriptions from a file of `edn export`, JSON lines or Parquet, in bulk.

Subscriptions keep their ids, so an import can be repeated: it creates nothing twice. An export contains no
secrets, so addresses get new ones. Retained events are not replayed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from edn.cli.output import show_progress
from edn.tools.console import (
    DEFAULT_URL,
    USAGE,
    JsonOption,
    UrlOption,
    fail,
    failing_readably,
    say,
    show_json,
)

if TYPE_CHECKING:
    from edn.client import AsyncClient

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def import_(
    path: Annotated[str, typer.Argument(help="File of `edn export`; - reads JSON lines from stdin.")],
    parallel: Annotated[int, typer.Option(min=1, max=32, help="Concurrent requests.")] = 4,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Import subscriptions of an export, with their ids. Their topics must exist."""
    if path != "-" and not Path(path).exists():
        fail(f"{path} does not exist", USAGE)
    began = time.monotonic()
    try:
        with failing_readably(), show_progress("importing") as advance:
            count, paused, expired = asyncio.run(_import(url, path, parallel, advance))
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}", USAGE)
    seconds = time.monotonic() - began
    if json:
        show_json(
            {"subscriptions": count, "paused": paused, "expired": expired, "seconds": round(seconds, 3)}
        )
        return
    rate = count / seconds if seconds else 0.0
    say(f"imported {count:,} subscriptions in {seconds:.1f} s ({rate:,.0f} per second)")
    if expired:
        say(f"skipped {expired:,} expired subscriptions")


def read(path: str) -> Iterator[dict[str, Any]]:
    """Yields the subscriptions of a file."""
    if path != "-":
        with Path(path).open("rb") as file:
            if file.read(4) == b"PAR1":
                yield from _read_parquet(path)
                return
    yield from _read_lines(path)


def _read_lines(path: str) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        file = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield _decode(line)
                except msgspec.MsgspecError as error:
                    fail(f"{path}, line {number} must be a JSON object: {error}", USAGE)


def _read_parquet(path: str) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        fail(f'{error.name} is not installed; run `pip install "edn[spark]"`', USAGE)
    with closing(pq.ParquetFile(path)) as file:
        if "subscription" not in file.schema_arrow.names:
            fail(f"{path} contains rectangles only: export it again with this version of edn", USAGE)
        for batch in file.iter_batches(columns=["subscription"]):
            # The first row of a subscription's rectangles contains the subscription.
            yield from (_decode(text) for text in batch.column(0).to_pylist() if text is not None)


def _body(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the request body that creates the subscription again."""
    wanted = ("id", "topic", "filter", "expires", "owner", "location")
    body = {name: found[name] for name in wanted if found.get(name) is not None}
    sink = found.get("sink")
    if sink is not None:
        body["sink"] = {name: value for name, value in sink.items() if value is not None}
    return {**body, "from": "now"}


async def _import(url: str, path: str, parallel: int, advance: Callable[[int], None]) -> tuple[int, int, int]:
    """Returns the numbers of imported, paused and expired subscriptions."""
    from edn.client import AsyncClient

    now = time.time()
    expired = 0
    paused: list[str] = []

    def bodies() -> Iterator[bytes]:
        nonlocal expired
        from edn.client.encoding import encode

        for found in read(path):
            if _is_expired(found, now):
                expired += 1
                continue
            if found.get("state") == "paused":
                if "id" not in found:
                    fail(f"{path}: a paused subscription must have an id, as in an `edn export`", USAGE)
                paused.append(found["id"])
            yield encode(_body(found))

    async with AsyncClient(url, timeout=120.0) as client:
        count = await _post_all(client, bodies(), parallel, advance)
        slots = asyncio.Semaphore(parallel)

        async def pause(id: str) -> None:
            async with slots:
                await client.pause(id)

        for start in range(0, len(paused), 1000):
            await asyncio.gather(*(pause(id) for id in paused[start : start + 1000]))
    return count, len(paused), expired


async def _post_all(
    client: AsyncClient, bodies: Iterable[bytes], parallel: int, advance: Callable[[int], None]
) -> int:
    from edn.client import calls
    from edn.client.conversation import Call
    from edn.client.encoding import array, chunks

    running: set[asyncio.Task[int]] = set()
    count = 0

    async def post(chunk: list[bytes]) -> int:
        await client.run(
            Call(method="POST", path="/v1/subscriptions", body=array(chunk), read=lambda _: None)
        )
        return len(chunk)

    try:
        for chunk in chunks(bodies, calls.MAX_SUBSCRIPTIONS, calls.MAX_BODY_BYTES):
            if len(running) == parallel:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    count += task.result()
                    advance(task.result())
            running.add(asyncio.create_task(post(chunk)))
        for task in running:
            count += await task
            advance(task.result())
    finally:
        for task in running:
            task.cancel()
    return count


def _is_expired(found: dict[str, Any], now: float) -> bool:
    expires = found.get("expires")
    if not isinstance(expires, str):
        return False
    try:
        return datetime.fromisoformat(expires).timestamp() <= now
    except ValueError:  # a duration, or a value that the network refuses
        return False
