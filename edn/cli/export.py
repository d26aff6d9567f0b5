"""`edn export`: topics, advertisements and subscriptions as JSON lines, or subscriptions as Parquet.

Subscriptions are read page by page and written as they arrive, so memory does not grow with their number.
A subscription that changes during the export is exported in one of its states, never half. The file gets its
name when it is complete.

JSON lines begin with the topics, which `edn import` creates if they are missing, and their advertisements. A
subtree subscription is one JSON line. A Parquet file, for planning, contains one topic, so it contains the
member of that topic, which can be planned and moved, but not imported.
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

from edn.cli.output import show_progress
from edn.formats.counts import counted
from edn.tools.console import DEFAULT_URL, USAGE, JsonOption, UrlOption, connected, fail, say, show_json

if TYPE_CHECKING:
    from edn.client import Client, Subscription
    from edn.model.schema import Schema

#: subscriptions per request, and per row group of a file
PAGE = 1000
GROUP = 10_000


def export(
    path: Annotated[
        str,
        typer.Argument(
            help="File to write: JSON lines if it ends with .jsonl, .ndjson or .json, else Parquet. "
            "- writes JSON lines to standard output."
        ),
    ],
    topic: Annotated[
        str | None, typer.Option(help="Only this topic. Required for Parquet if there are several topics.")
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Write JSON lines, whatever the name of the file.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Export topics, advertisements and subscriptions as JSON lines, or subscriptions as Parquet.

    Parquet files are for `edn repartition plan`.
    Signing secrets are not exported.
    """
    to_stdout = path == "-"
    if to_stdout and json:
        fail("--json requires a file: with - standard output has the export", USAGE)
    target = Path(path)
    json_lines = json_lines or to_stdout or target.suffix.lower() in (".jsonl", ".ndjson", ".json")
    if not to_stdout and target.exists() and not overwrite:
        fail(f"{path} exists; choose another file or use --overwrite", USAGE)
    rows, described = 0, {"topics": 0, "advertisements": 0}
    with connected(url) as client, show_progress("exporting") as advance:
        if to_stdout:
            described, count = _write_lines(client, topic, sys.stdout.buffer, advance)
        elif json_lines:
            with _complete_file(target) as partial, partial.open("wb") as file:
                described, count = _write_lines(client, topic, file, advance)
        else:
            name = topic or _only_topic(client)
            with _complete_file(target) as partial:
                count, rows = _write_parquet(client, name, partial, advance)
    if json:
        show_json({"subscriptions": count, **(described if json_lines else {"rectangles": rows})})
    elif not to_stdout:
        also = f"{counted(described['topics'], 'topic')} and " if json_lines else ""
        if described["advertisements"]:
            declared = counted(described["advertisements"], "advertisement")
            also = f"{counted(described['topics'], 'topic')}, {declared} and "
        say(f"exported {also}{counted(count, 'subscription')} to {path}")


def _only_topic(client: Client) -> str:
    names = [topic.name for topic in client.topics()]
    if len(names) != 1:
        known = ", ".join(sorted(names)[:10]) or "none"
        fail(f"a Parquet file contains one topic: choose it with --topic (topics: {known})", USAGE)
    return names[0]


def _write_lines(
    client: Client, topic: str | None, file: BinaryIO, advance: Callable[[int], None]
) -> tuple[dict[str, int], int]:
    """Writes topics, advertisements, then subscriptions; returns the numbers of all."""
    from edn.model.namespace import includes, is_subtree

    def is_chosen(name: str) -> bool:
        return topic is None or (includes(topic, name) if is_subtree(topic) else topic == name)

    encode = msgspec.json.Encoder().encode
    count = topics = advertisements = 0
    for one in client.topics():
        if is_chosen(one.name):
            file.write(encode(one) + b"\n")
            topics += 1
    for declared in client.advertisements(limit=PAGE):
        if is_chosen(declared.topic):
            file.write(encode(declared) + b"\n")
            advertisements += 1
    for subscription in _counted(client.subscriptions(topic=topic, limit=PAGE), advance):
        file.write(encode(subscription) + b"\n")
        count += 1
    file.flush()
    return {"topics": topics, "advertisements": advertisements}, count


def _write_parquet(client: Client, topic: str, path: Path, advance: Callable[[int], None]) -> tuple[int, int]:
    """Writes one row per rectangle; returns the numbers of subscriptions and rows."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        fail(f'{error.name} is not installed; run `pip install "edn[spark]"`', USAGE)
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
    """Binds filters to a topic's schema, and reads the schema again if an attribute was added since."""

    def __init__(self, client: Client, topic: str) -> None:
        from edn.model.schema import Schema

        self._client = client
        self._topic = topic
        self._schema: Schema = Schema.parse(client.topic(topic).attributes)

    def rows(self, one: Subscription) -> list[tuple[str, str | None, Any, Any, str | None]]:
        """Returns one row per rectangle; the first contains the whole subscription, for `edn import`."""
        from edn.model.namespace import is_member

        found = self._rectangles(one)
        whole = None if is_member(one.id) else msgspec.json.encode(one).decode()
        texts = [whole, *[None] * (len(found) - 1)]
        return [(one.id, one.server, lo, hi, text) for (lo, hi), text in zip(found, texts, strict=True)]

    def _rectangles(self, one: Subscription) -> list[tuple[Any, Any]]:
        from edn.errors import InvalidFilter
        from edn.model.filter import Filter

        found: list[tuple[Any, Any]] = []
        for filter in one.filters_on(self._topic):
            parsed = Filter.parse(filter)
            try:
                rects = parsed.bind(self._schema).rects()
            except InvalidFilter:
                self._schema = self._schema.evolve(self._client.topic(self._topic).attributes)
                rects = parsed.bind(self._schema).rects()
            found += zip(rects.lo.tolist(), rects.hi.tolist(), strict=True)
        if not found:
            # It matches nothing, but has a server: the point without any value represents it.
            nowhere = [float("-inf")] * self._schema.width
            return [(nowhere, nowhere)]
        return found


@contextmanager
def _complete_file(target: Path) -> Iterator[Path]:
    """Yields a temporary path; it is renamed to the target on success and deleted on failure."""
    partial = target.with_name(target.name + ".partial")
    try:
        yield partial
        partial.replace(target)
    except OSError as error:
        fail(f"cannot write {target}: {error.strerror}", USAGE)
    finally:
        partial.unlink(missing_ok=True)


def _counted(found: Iterable[Subscription], advance: Callable[[int], None]) -> Iterator[Subscription]:
    for one in found:
        yield one
        advance(1)
