"""Background tasks of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from edn.errors import Unavailable

logger = structlog.get_logger()

#: rest of a task that failed, before it starts again
RESTART_SECONDS = 1.0


class Tasks:
    """References background tasks until they end, and logs failed ones. Event loop only."""

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
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def periodic(seconds: float, step: Callable[[], Awaitable[object]], name: str) -> None:
    """Runs a step repeatedly with a delay in between; logs a failing step and continues."""
    while True:
        try:
            await step()
        except Unavailable as error:
            logger.warning("step_failed", step=name, reason=str(error))
        except Exception as error:
            logger.error("step_failed", step=name, exc_info=error)
        await asyncio.sleep(seconds)


async def lasting(work: Callable[[], Awaitable[object]], name: str) -> None:
    """Runs a task that should not end; logs an error that it did not expect, and starts it again.

    The task must be able to start again. Without it a process would go on without one of its parts.
    """
    while True:
        try:
            await work()
            return
        except Exception as error:
            logger.error("task_failed", task=name, exc_info=error)
        await asyncio.sleep(RESTART_SECONDS)
