"""Which thread may call what: declared on the class, checked while these tests run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from serverkit import Kit

from edn.runtime.ownership import WrongThread, any_thread, enforce, owned, share


@owned("loop")
class OfTheLoop:
    def change(self) -> None:
        """Change something."""

    @any_thread
    def look(self) -> None:
        """Look at something."""


@owned("writer")
class OfTheWriter:
    def change(self) -> None:
        """Change something."""


enforce()


def in_thread(name: str, function: Callable[[], None]) -> BaseException | None:
    """Call a function in a thread of this name; what it raised."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call, name=name)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_an_object_of_the_loop_is_called_on_the_loop_only() -> None:
    one = OfTheLoop()

    async def call() -> None:
        one.change()

    asyncio.run(call())
    assert in_thread("writer", one.look) is None
    assert isinstance(in_thread("writer", one.change), WrongThread)


def test_an_object_of_the_writer_is_anybodys_until_it_is_shared() -> None:
    one = OfTheWriter()
    one.change()
    share(one)
    assert in_thread("writer", one.change) is None
    with pytest.raises(WrongThread, match=r"OfTheWriter\.change must be called in the writer thread"):
        one.change()


def test_the_registry_is_the_writers(kit: Kit) -> None:
    with pytest.raises(WrongThread, match="writer"):
        kit.registry.remove([])
