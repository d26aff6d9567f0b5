"""`edn publish`: one event typed in, or many from a file or a pipe."""

from __future__ import annotations

import io
import json as jsonlib
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from edn.tools.console import (
    DEFAULT_URL,
    REFUSED,
    USAGE,
    JsonOption,
    UrlOption,
    connected,
    fail,
    readable,
    say,
    show_json,
)

if TYPE_CHECKING:
    from edn.client import Client

Event = dict[str, Any]


class UnreadableLineError(Exception):
    """A line of the input is no event."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


def publish(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE... | JSON | -",
            help="One event as attributes or as JSON; an array of them; or - for JSON lines from stdin.",
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Publish a file of JSON lines, one event a line.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="Idempotency key: publishing the same input with it again publishes nothing twice."
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, max=500, help="Events a request; 1 publishes each line as it comes.")
    ] = 500,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Publish events: edn publish stocks symbol=GE price=32.5

    An event is durable when this has printed its id. A request of many takes all of its events or none.
    """
    if (file is not None) + bool(data) != 1:
        fail("give either an event, or --file, or - to read from stdin", USAGE)
    if file is not None:
        try:
            with file.open(encoding="utf-8") as lines:
                _publish_lines(topic, lines, file.stat().st_size, key, batch, url, json)
        except OSError as error:
            fail(f"cannot read {file}: {error.strerror}", USAGE)
    elif data == ["-"]:
        # Strict: what is not UTF-8 is an error of that line, not a question mark in an event.
        stdin = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8")
        _publish_lines(topic, stdin, None, key, batch, url, json)
    else:
        _publish_typed(topic, data or [], key, url, json)


def _publish_typed(topic: str, data: list[str], key: str | None, url: str, json: bool) -> None:
    from edn.client import Published

    with connected(url) as client:
        if data[0].lstrip().startswith(("{", "[")):
            if len(data) > 1:
                fail("JSON is one argument: quote it", USAGE)
            try:
                parsed = parse_json(data[0])
            except ValueError as error:
                fail(f"this is no JSON: {error}", USAGE)
        else:
            parsed = from_pairs(data, client.topic(topic).attributes)
        if isinstance(parsed, list):
            published = client.publish_many(topic, parsed, idempotency_key=key)
        else:
            published = Published(accepted=1, ids=[client.publish(topic, parsed, idempotency_key=key)])
    if json:
        show_json(published)
    else:
        for id in published.ids:
            typer.echo(id)


def _publish_lines(
    topic: str, lines: TextIO, size: int | None, key: str | None, batch: int, url: str, json: bool
) -> None:
    done = 0
    key = key or uuid.uuid4().hex
    with connected(url) as client, _progress(size) as advance:
        numbered = _read_lines(lines, advance)
        try:
            while group := list(islice(numbered, batch)):
                _publish_group(client, topic, group, f"{key}/{done}" if done else key, done)
                done += len(group)
        except UnreadableLineError as error:
            fail(f"{error}\n{done:,} events from before it are published", USAGE)
        except UnicodeDecodeError as error:
            fail(f"the input is not UTF-8 ({error.reason})\n{done:,} events are published", USAGE)
    if json:
        show_json({"accepted": done})
    else:
        say(f"{done:,} events published")


def _publish_group(client: Client, topic: str, group: list[tuple[int, Event]], key: str, done: int) -> None:
    from edn.client import ProblemError

    try:
        client.publish_many(topic, (event for _, event in group), idempotency_key=key)
    except ProblemError as problem:
        if problem.index is None:
            raise
        accepted = done + len(problem.accepted)
        line = group[problem.index][0]
        # The line says which event it is; what is left of the place is that in the event.
        problem.index = None
        problem.pointer = re.sub(r"^/\d+", "", problem.pointer or "") or None
        fail(f"line {line}: {readable(problem)}\n{accepted:,} events from before it are published", REFUSED)


def _read_lines(lines: Iterable[str], advance: Callable[[int], None]) -> Iterator[tuple[int, Event]]:
    for number, line in enumerate(lines, start=1):
        advance(len(line.encode()))
        if not line.strip():
            continue
        try:
            event = parse_json(line)
        except ValueError as error:
            raise UnreadableLineError(number, f"no JSON: {error}") from error
        if not isinstance(event, dict):
            raise UnreadableLineError(number, "an event is a JSON object of attributes")
        yield number, event


@contextmanager
def _progress(size: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr if somebody is looking; counts bytes, for a file's lines are not known beforehand."""
    if not sys.stderr.isatty():
        yield lambda _bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("publishing", total=size)
        yield lambda count: progress.advance(task, count)


def parse_json(text: str) -> Any:
    """JSON that every reader reads alike: no NaN, no name twice."""
    return jsonlib.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names an attribute twice")
    return found


def from_pairs(pairs: Iterable[str], attributes: Mapping[str, str]) -> Event:
    """An event from NAME=VALUE words; the topic's types say what a value is."""
    event: Event = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            fail(f'"{pair}" is no attribute: write NAME=VALUE, or the whole event as JSON', USAGE)
        if name in event:
            fail(f'the attribute "{name}" is given twice', USAGE)
        event[name] = _value(name, text, attributes.get(name))
    return event


def _value(name: str, text: str, kind: str | None) -> Any:
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return {"true": True, "false": False}[text]
            case _:
                # A string, a time, one of ours ($id), or an attribute that the network will refuse by name.
                return text
    except (ValueError, KeyError):
        wanted = "true or false" if kind == "boolean" else f"a {kind}" if kind == "number" else f"an {kind}"
        fail(f'"{text}" is not {wanted}, which the attribute "{name}" is', USAGE)
