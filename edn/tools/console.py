"""Shared by the commands: address of the network, output for people and programs, exit codes."""

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
        "--url", envvar="EDN_URL", help="Address of the network; several with commas.", show_default=True
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

DEFAULT_URL = "http://127.0.0.1:8080"


@contextmanager
def connected(url: str) -> Iterator[Client]:
    """A client whose errors end the command: readable on stderr, with the exit code that they mean."""
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
    """Turn what a client's calls raise into a message on stderr and the exit code."""
    from edn.client import ClientError, ProblemError, UnreachableError
    from edn.errors import InvalidInput

    try:
        yield
    except ProblemError as problem:
        fail(readable(problem), REFUSED)
    except UnreachableError as error:
        fail(
            f"{error}\nIs a network running there? `edn up` starts one; --url or EDN_URL names another.",
            UNREACHABLE,
        )
    except ClientError as error:
        fail(str(error), UNREACHABLE)
    except InvalidInput as error:
        fail(error.detail, USAGE)


def readable(problem: ProblemError) -> str:
    """A problem for people: what, why, where."""
    lines = [f"{problem.title}: {problem.detail}"]
    if problem.index is not None:
        lines.append(f"  element {problem.index} (counted from 0)")
    if problem.pointer is not None:
        lines.append(f"  at {problem.pointer}")
    if problem.column is not None:
        lines.append(f"  in column {problem.column} of the filter")
    if problem.retry_after is not None:
        lines.append(f"  worth another try after {problem.retry_after:g} s")
    return "\n".join(lines)


def fail(message: str, code: int) -> NoReturn:
    typer.echo(f"edn: {message}", err=True)
    raise typer.Exit(code)


def say(message: str) -> None:
    """A word to the person at the terminal, apart from the result: stderr."""
    typer.echo(message, err=True)


def show_json(value: Any) -> None:
    """One JSON document on one line of stdout, at once."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(value, enc_hook=_plain_number).decode() + "\n")
    sys.stdout.flush()


def _plain_number(value: Any) -> Any:
    """Of numpy's numbers, which benchmarks are full of, the plain ones."""
    if hasattr(value, "item"):
        return value.item()
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


def show_table(table: RenderableType) -> None:
    """A table, or several things under each other."""
    from rich.console import Console

    # Without a terminal there is no width to fit into: nothing is cut that a pipe may look for.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(table)


def compact(value: Any) -> str:
    """A filter or a value on one line."""
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
