"""`edn export`: a snapshot of all subscriptions, as Parquet for `edn repartition plan` or as JSON lines.

Subscriptions are read page by page from the directory and written as they come, so memory does not grow with
their number. Each is as it was when its page was read: one that comes, goes or changes meanwhile is there or
not, and never half. A file appears under its name when it is whole.

One to a subtree is one JSON line. In Parquet, which holds one topic, there is the part of it that is to that
topic, to be planned for and moved; it cannot be imported from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import msgspec
import typer

from edn.tools.console import DEFAULT_URL, USAGE, JsonOption, UrlOption, connected, fail, say, show_json

if TYPE_CHECKING:
    from edn.client import Client, Subscription
    from edn.model.schema import Schema

#: subscriptions of one request, and of one group of rows in a file
PAGE = 1000
GROUP = 10_000


def export(
    path: Annotated[str, typer.Argument(help="File to write; - writes JSON lines to standard output.")],
    topic: Annotated[
        str | None,
        typer.Option(help="Only those of this topic. Parquet holds one topic: there are as many spaces."),
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="One JSON object a subscription and line, as it is read.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Write all subscriptions to a file: rectangles as Parquet for `edn repartition plan`, or JSON lines."""
    to_stdout = path == "-"
    if to_stdout and (not json_lines or json):
        fail("standard output takes JSON lines only: `edn export - --json-lines`", USAGE)
    target = Path(path)
    if not to_stdout and target.exists() and not overwrite:
        fail(f"{path} exists; choose another file, or --overwrite it", USAGE)
    rows = 0
    with connected(url) as client, counting("exporting") as advance:
        if to_stdout:
            count = _write_lines(
                _counted(client.subscriptions(topic=topic, limit=PAGE), advance), sys.stdout.buffer
            )
        elif json_lines:
            with _whole_file(target) as partial, partial.open("wb") as file:
                count = _write_lines(_counted(client.subscriptions(topic=topic, limit=PAGE), advance), file)
        else:
            name = topic or _only_topic(client)
            with _whole_file(target) as partial:
                count, rows = _write_parquet(client, name, partial, advance)
    if json:
        show_json({"subscriptions": count, **({} if json_lines else {"rectangles": rows})})
    elif not to_stdout:
        say(f"{count:,} subscriptions in {path}")


def _only_topic(client: Client) -> str:
    names = [topic.name for topic in client.topics()]
    if len(names) != 1:
        there = ", ".join(sorted(names)[:10]) or "none"
        fail(f"a Parquet file holds one topic: choose it by --topic (there are {there})", USAGE)
    return names[0]


def _write_lines(found: Iterable[Subscription], file: BinaryIO) -> int:
    encode = msgspec.json.Encoder().encode
    count = 0
    for one in found:
        file.write(encode(one) + b"\n")
        count += 1
    file.flush()
    return count


def _write_parquet(client: Client, topic: str, path: Path, advance: Callable[[int], None]) -> tuple[int, int]:
    """A row for each rectangle; how many subscriptions and rows there were."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        fail(f'{error.name} is not installed; `pip install "edn[spark]"` brings it', USAGE)
    bounds = pa.list_(pa.float64())
    text = pa.string()
    schema = pa.schema(
        [("id", text), ("server", text), ("lo", bounds), ("hi", bounds), ("subscription", text)]
    )
    count = written = 0
    binder = _Binder(client, topic)
    found = _counted(client.subscriptions(topic=topic, limit=PAGE, members=True), advance)
    with pq.ParquetWriter(path, schema) as writer:
        while group := list(islice(found, GROUP)):
            rows = [row for one in group for row in binder.rows(one)]
            columns = zip(*rows, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            count += len(group)
            written += len(rows)
    return count, written


class _Binder:
    """Filters of one topic as rectangles, also of those that use an attribute that came meanwhile."""

    def __init__(self, client: Client, topic: str) -> None:
        from edn.model.schema import Schema

        self._client = client
        self._topic = topic
        self._schema: Schema = Schema.parse(client.topic(topic).attributes)

    def rows(self, one: Subscription) -> list[tuple[str, str | None, Any, Any, str | None]]:
        """One for each rectangle; the first tells all of the subscription, for `edn import`."""
        from edn.model.namespace import is_member

        found = self._rectangles(one)
        told = None if is_member(one.id) else msgspec.json.encode(one).decode()
        whole = [told, *[None] * (len(found) - 1)]
        return [(one.id, one.server, lo, hi, text) for (lo, hi), text in zip(found, whole, strict=True)]

    def _rectangles(self, one: Subscription) -> list[tuple[Any, Any]]:
        from edn.errors import InvalidFilter
        from edn.model.filter import Filter

        parsed = Filter.parse(one.filter)
        try:
            rects = parsed.bind(self._schema).rects()
        except InvalidFilter:
            self._schema = self._schema.evolve(self._client.topic(self._topic).attributes)
            rects = parsed.bind(self._schema).rects()
        if not len(rects):
            # It matches nothing, yet has a server: the point at which everything is missing stands for it.
            nowhere = [float("-inf")] * self._schema.width
            return [(nowhere, nowhere)]
        return list(zip(rects.lo.tolist(), rects.hi.tolist(), strict=True))


@contextmanager
def _whole_file(target: Path) -> Iterator[Path]:
    """Where to write; it takes the target's name when all went well, and is gone otherwise."""
    partial = target.with_name(target.name + ".partial")
    try:
        yield partial
        partial.replace(target)
    except OSError as error:
        fail(f"{target} cannot be written: {error.strerror}", USAGE)
    finally:
        partial.unlink(missing_ok=True)


def _counted(found: Iterable[Subscription], advance: Callable[[int], None]) -> Iterator[Subscription]:
    for one in found:
        yield one
        advance(1)


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """A count on stderr if somebody is looking."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda count: progress.advance(task, count)
