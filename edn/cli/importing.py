"""`edn import`: subscriptions from a file that `edn export` wrote, JSON lines or Parquet, in bulk.

Requests of up to a thousand go out several at once. Ids come along, so importing the same file again changes
nothing, and an import that was interrupted is simply repeated. Secrets are not in an export: addresses get
new ones. A subscription begins where it is imported: the past is not told again.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.cli.exporting import counting
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


def import_(
    path: Annotated[str, typer.Argument(help="A file of `edn export`; - reads JSON lines.")],
    parallel: Annotated[int, typer.Option(min=1, max=32, help="Requests at the same time.")] = 4,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Subscribe all that a file of `edn export` holds, under their ids. Their topics must be there."""
    if path != "-" and not Path(path).exists():
        fail(f"{path} is not there", USAGE)
    began = time.monotonic()
    try:
        with failing_readably(), counting("importing") as advance:
            count, paused, expired = asyncio.run(_import(url, path, parallel, advance))
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}", USAGE)
    seconds = time.monotonic() - began
    if json:
        show_json(
            {"subscriptions": count, "paused": paused, "expired": expired, "seconds": round(seconds, 3)}
        )
        return
    rate = count / seconds if seconds else 0.0
    say(f"{count:,} subscriptions in {seconds:.1f} s ({rate:,.0f} a second)")
    if expired:
        say(f"{expired:,} had expired, and were left out")


def read(path: str) -> Iterator[dict[str, Any]]:
    """The subscriptions of a file, one after the other."""
    if path != "-":
        with Path(path).open("rb") as file:
            if file.read(4) == b"PAR1":
                yield from _read_parquet(path)
                return
    yield from _read_lines(path)


def _read_lines(path: str) -> Iterator[dict[str, Any]]:
    import msgspec

    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with ExitStack() as stack:
        file = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield decode(line)
                except msgspec.MsgspecError as error:
                    fail(f"{path}, line {number}: {error}; one JSON object a line is right", USAGE)


def _read_parquet(path: str) -> Iterator[dict[str, Any]]:
    import msgspec

    try:
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        fail(f'{error.name} is not installed; `pip install "edn[spark]"` brings it', USAGE)
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with closing(pq.ParquetFile(path)) as file:
        if "subscription" not in file.schema_arrow.names:
            fail(f"{path} holds rectangles only: export it anew with this program", USAGE)
        for batch in file.iter_batches(columns=["subscription"]):
            # A subscription stands in the first row of its rectangles.
            yield from (decode(text) for text in batch.column(0).to_pylist() if text is not None)


def _body(found: dict[str, Any]) -> dict[str, Any]:
    """What is posted to have it again."""
    wanted = ("id", "topic", "filter", "expires", "owner", "location")
    body = {name: found[name] for name in wanted if found.get(name) is not None}
    sink = found.get("sink")
    if sink is not None:
        body["sink"] = {name: value for name, value in sink.items() if value is not None}
    return {**body, "from": "now"}


async def _import(url: str, path: str, parallel: int, advance: Callable[[int], None]) -> tuple[int, int, int]:
    """How many there are now; how many of them are paused; how many had expired."""
    from edn.client import AsyncClient

    now = time.time()
    expired = 0
    paused: list[str] = []

    def bodies() -> Iterator[bytes]:
        nonlocal expired
        from edn.client.encoding import encode

        for found in read(path):
            if _over(found, now):
                expired += 1
                continue
            if found.get("state") == "paused":
                if "id" not in found:
                    fail(f"{path}: a paused subscription has no id; `edn export` writes them", USAGE)
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


def _over(found: dict[str, Any], now: float) -> bool:
    from datetime import datetime

    expires = found.get("expires")
    if not isinstance(expires, str):
        return False
    try:
        return datetime.fromisoformat(expires).timestamp() <= now
    except ValueError:  # a duration, or something that the network refuses with a reason
        return False
