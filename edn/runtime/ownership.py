"""Declares the thread that owns the state of a class; tests enforce it.

    loop      the thread of the event loop
    writer    the thread that writes the database, once the object is shared
    reader    the thread of one database reader
    any       every thread: the class is immutable, locked, or safe operation by operation

`@owned(...)` sets `OWNER` and costs nothing. After `enforce`, every public method of a declared class checks
its thread, except methods with `@any_thread`.
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

#: prefix of the writer thread's name
WRITER_THREAD = "writer"

_declared: list[tuple[type, Owner]] = []
_enforced: set[type] = set()


class WrongThread(AssertionError):
    """A method was called in a thread that does not own the object."""


def owned(owner: Owner) -> Callable[[Class], Class]:
    """Declares the owner of a class's state."""

    def declare(declared: Class) -> Class:
        declared.OWNER = owner  # type: ignore[attr-defined]
        _declared.append((declared, owner))
        return declared

    return declare


def any_thread(function: Function) -> Function:
    """Exempts a method that is safe in every thread."""
    function.__any_thread__ = True  # type: ignore[attr-defined]
    return function


def share(one: object) -> None:
    """Starts the ownership of an object; before, its creator may change it."""
    one.__dict__["_shared"] = True


def enforce() -> None:
    """Makes public methods of declared classes check their thread. For tests."""
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
            raise WrongThread(
                f"{declared.__name__}.{function.__name__} must be called in the {owner} thread, got {place}"
            )
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
