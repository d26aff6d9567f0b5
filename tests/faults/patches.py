"""Replaces functions and methods of the product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: gets the original, returns its replacement
Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


def wrap(owner: Any, name: str) -> Callable[[Wrapper], None]:
    """Replace a function of a class or module by the result of the decorated wrapper.

    Raises AttributeError if the product has no such function: a patch that changes nothing would hide that a
    test no longer tests.
    """

    def replace(wrapper: Wrapper) -> None:
        put(owner, name, wrapper(getattr(owner, name)))

    return replace


def put(owner: Any, name: str, value: Any) -> None:
    """Set an attribute of a class or module."""
    setattr(owner, name, value)
