"""Declares which thread owns the state of a class, and checks that in tests.

    loop      the thread of the event loop
    writer    the thread that writes the database, once the object is shared
    reader    the thread of one database reader
    any       every thread: the class is immutable, locked, or safe operation by operation

`@owned(...)` sets `OWNER` and costs nothing. `enforce` makes every public method of every declared class
check its thread; tests call it. Methods with `@any_thread` are exempt: reads that are safe elsewhere.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeVar

Owner = Literal["loop", "writer", "reader", "any"]
Class = TypeVar("Class", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])

#: begins the name of the thread that writes
WRITER_THREAD = "writer"

_declared: list[tuple[type, Owner]] = []
_enforced: set[type] = set()


class WrongThread(AssertionError):
    """A method was called in a thread that does not own the object."""


def owned(owner: Owner) -> Callable[[Class], Class]:
    """Declare the owner of a class's state."""

    def declare(declared: Class) -> Class:
        declared.OWNER = owner  # type: ignore[attr-defined]  # a class attribute for readers and tests
        _declared.append((declared, owner))
        return declared

    return declare


def any_thread(function: Function) -> Function:
    """Exempt a method: it is safe in every thread."""
    function.__any_thread__ = True  # type: ignore[attr-defined]
    return function


def share(one: object) -> None:
    """Say that an object has its owner from now on; before, whoever makes it may change it."""
    one.__dict__["_shared"] = True


def enforce() -> None:
    """Check the thread of every call of a public method of a declared class. For tests."""
    for declared, owner in _declared:
        if owner == "any" or declared in _enforced:
            continue
        _enforced.add(declared)
        for name, function in list(vars(declared).items()):
            exempt = name.startswith("_") or getattr(function, "__any_thread__", False)
            if inspect.isfunction(function) and not exempt:
                setattr(declared, name, _checked(declared, owner, function))


def _checked(declared: type, owner: Owner, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        if not _is_owner(self, owner):
            place = threading.current_thread().name
            raise WrongThread(f"{declared.__name__}.{function.__name__} is the {owner}'s, called in {place}")
        return function(self, *given, **named)

    return call


def _is_owner(one: Any, owner: Owner) -> bool:
    current = threading.current_thread()
    if owner == "writer":
        return not getattr(one, "_shared", False) or current.name.startswith(WRITER_THREAD)
    if asyncio._get_running_loop() is not None:
        return owner == "loop"
    # A test that needs no loop calls from the main thread.
    return current is threading.main_thread() or owner == "reader"
