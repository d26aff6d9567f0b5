"""Background tasks: a failure is logged and does not end the process's work."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from edn.errors import Unavailable
from edn.runtime.tasks import Tasks, lasting, periodic


def test_a_periodic_step_that_fails_is_logged_and_run_again() -> None:
    failures: list[Exception] = [Unavailable("the disk is full"), ValueError("a bug")]
    done = asyncio.Event()

    async def step() -> None:
        if failures:
            raise failures.pop(0)
        done.set()

    async def run() -> None:
        tasks = Tasks()
        tasks.spawn(periodic(0.0, step, "testing"), "test")
        async with asyncio.timeout(10):
            await done.wait()
        await tasks.stop()

    with capture_logs() as logs:
        asyncio.run(run())
    assert [(log["event"], log["step"], log["log_level"]) for log in logs] == [
        ("step_failed", "testing", "warning"),
        ("step_failed", "testing", "error"),
    ]


def test_the_death_of_a_task_is_logged_and_the_end_of_one_is_not() -> None:
    async def die() -> None:
        raise ValueError("a bug")

    async def end() -> None:
        pass

    async def run() -> None:
        tasks = Tasks()
        await asyncio.wait([tasks.spawn(die(), "mortal"), tasks.spawn(end(), "short")])
        waiting = tasks.spawn(asyncio.sleep(3600), "long")
        await asyncio.sleep(0)
        await tasks.stop()
        assert waiting.cancelled()

    with capture_logs() as logs:
        asyncio.run(run())
    assert [(log["event"], log["task"]) for log in logs] == [("task_died", "mortal")]


def test_a_task_that_must_last_starts_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edn.runtime.tasks.RESTART_SECONDS", 0.0)
    failures = [ValueError("a bug"), Unavailable("the database does not answer")]
    began = 0

    async def work() -> None:
        nonlocal began
        began += 1
        if failures:
            raise failures.pop(0)

    with capture_logs() as logs:
        asyncio.run(lasting(work, "testing"))
    assert began == 3
    assert [(log["event"], log["task"]) for log in logs] == [("task_failed", "testing")] * 2
