"""`edn publish`: one event from arguments, or many from a file or standard input."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import msgspec
import typer

from edn.cli.arguments import Event, parse_event, parse_json
from edn.cli.output import show, show_progress
from edn.errors import InvalidInput
from edn.formats import strict_json
from edn.formats.counts import counted
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


class InvalidLineError(Exception):
    """A line of the input is not an event."""


def publish(
    topic: Annotated[str, typer.Argument(help="Topic of the events.")],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE... | JSON | -",
            help="One event as attributes or JSON, an array of events, or - for JSON lines from stdin.",
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="File of JSON lines, one event per line.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key. The same input with the same key is published once."),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, max=500, help="Events per request. 1 publishes each line at once.")
    ] = 500,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Publish events: edn publish stocks symbol=GE price=32.5

    An event is durable when its id is printed. The events of one request are accepted together or not at all.
    """
    if (file is not None) + bool(data) != 1:
        fail("give either an event, or --file, or - to read from stdin", USAGE)
    if file is not None:
        try:
            with file.open("rb") as lines:
                _publish_lines(topic, lines, file.stat().st_size, key, batch, url, json)
        except OSError as error:
            fail(f"cannot read {file}: {error.strerror}", USAGE)
    elif data == ["-"]:
        _publish_lines(topic, sys.stdin.buffer, None, key, batch, url, json)
    else:
        _publish_arguments(topic, data or [], key, url, json)


def _publish_arguments(topic: str, data: list[str], key: str | None, url: str, json: bool) -> None:
    from edn.client import ProblemError, Published

    with connected(url) as client:
        if data[0].lstrip().startswith(("{", "[")):
            if len(data) > 1:
                fail("JSON must be one argument: quote it", USAGE)
            text = data[0].encode("utf-8", "surrogateescape")
            several = isinstance(parse_json(data[0], "event"), list)
            # The network gets the text as it is written.
            events: list[Event | bytes] = (
                [bytes(one) for one in msgspec.json.decode(text, type=list[msgspec.Raw])]
                if several
                else [text]
            )
        else:
            several, events = False, [parse_event(data, client.topic(topic).attributes)]
        if several:
            published = client.publish_many(topic, events, idempotency_key=key)
        else:
            try:
                id = client.publish(topic, events[0], idempotency_key=key)
                published = Published(1, [id]) if id else Published(0, [], [0])
            except ProblemError as problem:
                problem.index = None  # there is only one event
                raise
    show(json, published, *published.ids)
    if not json:
        _say_dropped(len(published.unadvertised))


def _publish_lines(
    topic: str, lines: BinaryIO, size: int | None, key: str | None, batch: int, url: str, json: bool
) -> None:
    done = dropped = 0
    key = key or uuid.uuid4().hex
    with connected(url) as client, show_progress("publishing", is_bytes=True, total=size) as advance:
        numbered = _read_lines(lines, advance)
        try:
            while group := list(islice(numbered, batch)):
                dropped += _publish_batch(client, topic, group, f"{key}/{done}" if done else key, done)
                done += len(group)
        except InvalidLineError as error:
            fail(f"{error}\n{_before(done)}", USAGE)
    if json:
        show_json({"accepted": done - dropped, **({"unadvertised": dropped} if dropped else {})})
    else:
        say(f"{counted(done - dropped, 'event')} published")
        _say_dropped(dropped)


def _say_dropped(count: int) -> None:
    if count:
        say(f"{counted(count, 'event')} dropped, because nothing that is advertised covers them")


def _publish_batch(client: Client, topic: str, batch: list[tuple[int, bytes]], key: str, done: int) -> int:
    """Publishes some lines; returns how many of them the topic has dropped."""
    from edn.client import ProblemError

    try:
        published = client.publish_many(topic, (event for _, event in batch), idempotency_key=key)
        return len(published.unadvertised)
    except ProblemError as problem:
        if problem.index is None:
            raise
        accepted = done + len(problem.accepted)
        line = batch[problem.index][0]
        # The line replaces the index in the batch; the pointer is shown relative to the event.
        problem.index = None
        problem.pointer = re.sub(r"^/\d+", "", problem.pointer or "") or None
        fail(f"line {line}: {readable(problem)}\n{_before(accepted)}", REFUSED)


def _before(count: int) -> str:
    return f"{counted(count, 'event')} before it {'is' if count == 1 else 'are'} published"


def _read_lines(lines: Iterable[bytes], advance: Callable[[int], None]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(lines, start=1):
        advance(len(line))
        if not line.strip():
            continue
        try:
            event = strict_json.decode(line)
        except InvalidInput as error:
            raise InvalidLineError(f"line {number}: {error.detail}") from error
        if not isinstance(event, dict):
            raise InvalidLineError(f"line {number}: an event must be a JSON object")
        yield number, line.strip()  # as it is written
