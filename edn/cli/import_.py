"""`edn import`: subscriptions from a file of `edn export`, JSON lines or Parquet, in bulk.

Topics that are missing are created first; existing ones are not changed. Then come the advertisements, which
need a key with the scope admin unless they belong to the publisher of that name. Advertisements and
subscriptions keep their ids, so an import can be repeated: it creates nothing twice. An export contains no
secrets, so addresses get new ones, which are printed: receivers verify with them. Retained events are not
replayed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from edn.api.subscriptions import SubscriptionList
from edn.cli.output import show_progress
from edn.formats.counts import counted
from edn.formats.sink_settings import MASK, is_secret_header
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
    """Import topics, advertisements and subscriptions of an export, and print new signing secrets.

    Ids are kept. Existing topics are not changed.
    """
    if path != "-" and not Path(path).exists():
        fail(f"{path} does not exist", USAGE)
    began = time.monotonic()
    try:
        with failing_readably(), show_progress("importing") as advance:
            done = asyncio.run(_import(url, path, parallel, advance))
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}", USAGE)
    seconds = time.monotonic() - began
    if json:
        show_json({**asdict(done), "seconds": round(seconds, 3)})
        return
    rate = done.subscriptions / seconds if seconds else 0.0
    if done.topics:
        say(f"created {counted(done.topics, 'topic')}")
    if done.advertisements:
        say(f"imported {counted(done.advertisements, 'advertisement')}")
    say(f"imported {counted(done.subscriptions, 'subscription')} in {seconds:.1f} s ({rate:,.0f} per second)")
    if done.expired:
        say(f"skipped {done.expired:,} expired")
    if done.without_credentials:
        say(
            f"paused {counted(len(done.without_credentials), 'subscription')} whose credentials or secret "
            "headers the file does not contain; give them with `edn subscription change ID "
            "--credentials-file FILE` or `--header NAME:VALUE`, then `edn resume ID`:"
        )
        for id in done.without_credentials:
            typer.echo(id)
    if done.secrets:
        say(
            f"{counted(len(done.secrets), 'address', 'addresses')} with a new signing secret; copy them now, "
            "they will not be shown again:"
        )
        for one in done.secrets:
            typer.echo(f"{one.url} {one.secret}")


@dataclass(frozen=True, slots=True)
class Secret:
    """The new signing secret of a URL, and a subscription that has it."""

    id: str
    url: str
    secret: str


@dataclass(slots=True)
class Imported:
    topics: int = 0
    advertisements: int = 0
    subscriptions: int = 0
    paused: int = 0
    #: advertisements and subscriptions that were skipped
    expired: int = 0
    #: ids of subscriptions whose credentials the file does not contain; they are paused
    without_credentials: list[str] = field(default_factory=list)
    secrets: list[Secret] = field(default_factory=list)


def read(path: str) -> Iterator[dict[str, Any]]:
    """Yields the topics, advertisements and subscriptions of a file."""
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
    wanted = ("id", "topic", "filter", "expires", "owner", "location", "state")
    body = {name: found[name] for name in wanted if found.get(name) is not None}
    sink = found.get("sink")
    if sink is not None:
        body["sink"] = _without_nulls(sink)
    return {**body, "from": "now"}


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(one) for name, one in value.items() if one is not None}


async def _import(url: str, path: str, parallel: int, advance: Callable[[int], None]) -> Imported:
    from edn.client import AsyncClient

    now = time.time()
    done = Imported()
    found_lines = read(path)
    topics, advertisements, first = _split(found_lines)

    def bodies() -> Iterator[bytes]:
        from edn.client.encoding import encode

        for found in chain(first, found_lines):
            if _is_expired(found, now):
                done.expired += 1
                continue
            if isinstance(found.get("sink"), dict) and _lacks_credentials(found["sink"]):
                if "id" not in found:
                    fail(
                        f"{path}: a subscription with credentials must have an id, as in an `edn export`",
                        USAGE,
                    )
                found["sink"] = _without_secrets(found["sink"])
                done.without_credentials.append(found["id"])
                found["state"] = "paused"
            done.paused += found.get("state") == "paused"
            yield encode(_body(found))

    async with AsyncClient(url, timeout=120.0) as client:
        for topic in topics:
            done.topics += await _create_topic(client, topic)
        for one in advertisements:
            if _is_expired(one, now):
                done.expired += 1
            else:
                await _advertise(client, one)
                done.advertisements += 1
        await _post_all(client, bodies(), parallel, advance, done)
    return done


def _lacks_credentials(sink: dict[str, Any]) -> bool:
    """Returns whether credentials of a sink, or headers that are secrets, are not in the file."""
    return _without_secrets(sink) != sink


def _without_secrets(sink: dict[str, Any]) -> dict[str, Any]:
    """Returns a sink without credentials of which only the type is known, and without hidden headers."""
    rest = dict(sink)
    credentials, headers = sink.get("credentials"), sink.get("headers")
    if isinstance(credentials, dict) and set(credentials) == {"type"}:
        del rest["credentials"]
    if isinstance(headers, dict):
        rest["headers"] = {
            name: value for name, value in headers.items() if not (value == MASK and is_secret_header(name))
        }
    return rest


def _split(
    lines: Iterator[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the topics and advertisements at the beginning of a file, and the first line after them."""
    topics: list[dict[str, Any]] = []
    advertisements: list[dict[str, Any]] = []
    for line in lines:
        if "attributes" in line:
            topics.append(line)
        elif "advertisement" in line:
            advertisements.append(line)
        else:
            return topics, advertisements, [line]
    return topics, advertisements, []


async def _advertise(client: AsyncClient, found: dict[str, Any]) -> None:
    """Creates an advertisement; no effect if it exists as it is in the file."""
    try:
        topic, declared = found["topic"], dict(found["advertisement"])
        names = {name: found.get(name) for name in ("id", "publisher", "expires")}
    except (KeyError, TypeError, ValueError):
        fail(f"an advertisement must have a topic and what it covers, got {found}", USAGE)
    await client.advertise(topic, declared, **names)


async def _create_topic(client: AsyncClient, topic: dict[str, Any]) -> bool:
    """Creates a topic unless it exists; returns whether it is new."""
    from edn.client import ProblemError

    try:
        await client.create_topic(
            topic["name"],
            topic["attributes"],
            engine=topic.get("engine"),
            availability=topic.get("availability"),
            closed=topic.get("closed"),
            advertising=topic.get("advertising"),
            only_new=True,
        )
    except ProblemError as problem:
        if problem.status != 412:
            raise
        known = await client.topic(topic["name"])
        if known.attributes != topic["attributes"]:
            say(f"topic {known.name} exists with other attributes and was not changed")
        return False
    except (KeyError, TypeError, AttributeError):
        fail(f"a topic must have a name and attributes, got {topic}", USAGE)
    return True


async def _post_all(
    client: AsyncClient,
    bodies: Iterable[bytes],
    parallel: int,
    advance: Callable[[int], None],
    done: Imported,
) -> None:
    from edn.client import calls
    from edn.client.conversation import Call
    from edn.client.encoding import array, chunks

    running: set[asyncio.Task[int]] = set()

    async def post(chunk: list[bytes]) -> int:
        answer = await client.run(
            Call(method="POST", path="/v1/subscriptions", body=array(chunk), read=lambda found: found.content)
        )
        if b'"secret"' in answer:  # only the first subscription of an address has one
            for made in msgspec.json.decode(answer, type=SubscriptionList).subscriptions:
                if made.sink is not None and made.sink.secret is not None:
                    done.secrets.append(Secret(made.id, made.sink.url, made.sink.secret))
        return len(chunk)

    try:
        for chunk in chunks(bodies, calls.MAX_SUBSCRIPTIONS, calls.MAX_BODY_BYTES):
            if len(running) == parallel:
                finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    done.subscriptions += task.result()
                    advance(task.result())
            running.add(asyncio.create_task(post(chunk)))
        for task in running:
            done.subscriptions += await task
            advance(task.result())
    finally:
        for task in running:
            task.cancel()


def _is_expired(found: dict[str, Any], now: float) -> bool:
    expires = found.get("expires")
    if not isinstance(expires, str):
        return False
    try:
        return datetime.fromisoformat(expires).timestamp() <= now
    except ValueError:  # a duration, or a value that the network refuses
        return False
