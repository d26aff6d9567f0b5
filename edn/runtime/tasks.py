"""Background tasks of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from edn.errors import Unavailable

logger = structlog.get_logger()


class Tasks:
    """Keeps background tasks until they end, and logs the death of one. Event loop only."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("task_died", task=task.get_name(), exc_info=task.exception())

    async def stop(self) -> None:
        """Cancel all tasks, and wait for their ends."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def periodic(seconds: float, step: Callable[[], Awaitable[object]], name: str) -> None:
    """Run a step again and again, with a pause after each; a step that fails is logged, and run again."""
    while True:
        try:
            await step()
        except Unavailable as error:
            logger.warning("step_failed", step=name, reason=str(error))
        except Exception as error:
            logger.error("step_failed", step=name, exc_info=error)
        await asyncio.sleep(seconds)
