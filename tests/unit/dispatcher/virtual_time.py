"""An event loop whose time passes only when nothing is left to do, and then at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]  # the one place where time passes
        select = selector.select

        def skip(timeout: float | None = None) -> Any:
            if timeout:
                self.now += timeout
            return select(0)

        selector.select = skip

    def time(self) -> float:
        return self.now


def run(work: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()
