"""Options, output and exit codes that all commands share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edn.client import Client, ProblemError

REFUSED = 1
USAGE = 2
UNREACHABLE = 3

UrlOption = Annotated[
    str,
    typer.Option(
        "--url", envvar="EDN_URL", help="URL of the network; several separated by commas.", show_default=True
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DEFAULT_URL = "http://127.0.0.1:8080"


@contextmanager
def connected(url: str) -> Iterator[Client]:
    """Opens a client whose errors end the command with a message and an exit code."""
    from edn.client import Client

    with failing_readably():
        try:
            client = Client(url)
        except ValueError as error:
            fail(str(error), USAGE)
        with client:
            yield client


@contextmanager
def failing_readably() -> Iterator[None]:
    """Converts client errors to a message on stderr and an exit code."""
    from edn.client import ClientError, ProblemError, UnreachableError
    from edn.errors import InvalidInput

    try:
        yield
    except ProblemError as problem:
        fail(readable(problem), REFUSED)
    except UnreachableError as error:
        if error.is_tls:
            fail(str(error), UNREACHABLE)
        fail(
            f"{error}\nIs a network running there? Start one with `edn up`, or set --url or EDN_URL.",
            UNREACHABLE,
        )
    except ClientError as error:
        fail(str(error), UNREACHABLE)
    except InvalidInput as error:
        fail(error.detail, USAGE)


def readable(problem: ProblemError) -> str:
    """Formats a problem: title, detail and location."""
    lines = [f"{problem.title}: {problem.detail}"]
    if problem.index is not None:
        lines.append(f"  event {problem.index} (counted from 0)")
    if problem.pointer is not None and (problem.column is None or problem.pointer != "/filter"):
        lines.append(f"  at {problem.pointer}")
    if problem.column is not None:
        lines.append(f"  in column {problem.column} of the filter")
    if problem.retry_after is not None:
        lines.append(f"  retry after {problem.retry_after:g} s")
    return "\n".join(lines)


def fail(message: str, code: int) -> NoReturn:
    typer.echo(f"edn: {message}", err=True)
    raise typer.Exit(code)


def say(message: str) -> None:
    """Prints a message to stderr, apart from the result."""
    typer.echo(message, err=True)


def show_json(value: Any) -> None:
    """Prints one JSON document on one line of stdout, flushed."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(value, enc_hook=_plain_number).decode() + "\n")
    sys.stdout.flush()


def _plain_number(value: Any) -> Any:
    """Converts numbers of numpy."""
    if hasattr(value, "item"):
        return value.item()
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


def show_table(table: RenderableType) -> None:
    """Prints a table or another renderable."""
    from rich.console import Console

    # Without a terminal, wide enough that nothing is truncated.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(table)


def compact(value: Any) -> str:
    """Formats a filter or a value on one line."""
    import json

    return value if isinstance(value, str) else json.dumps(_shortened(value), ensure_ascii=False)


def _shortened(value: Any) -> Any:
    """Writes whole numbers without a fraction: 33, not 33.0."""
    match value:
        case dict():
            return {name: _shortened(one) for name, one in value.items()}
        case list():
            return [_shortened(one) for one in value]
        case float() if value.is_integer() and abs(value) < 1e15:
            return int(value)
        case _:
            return value
