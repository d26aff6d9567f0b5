"""Runs one role of a peer as a process: the other side of `delivery.program`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import uvloop

#: the work of a role, with the settings of its process
Role = Callable[[dict[str, Any]], Awaitable[None]]


def say(message: dict[str, Any]) -> None:
    """Write a line of JSON for the benchmark; the first one says that the role is ready."""
    print(json.dumps(message), flush=True)  # noqa: T201


def run_role(roles: Mapping[str, Role]) -> None:
    """Run the role that the first argument names, until standard input ends."""
    uvloop.run(_run(roles[sys.argv[1]]))


async def _run(role: Role) -> None:
    settings = json.loads(sys.stdin.buffer.readline())
    task = asyncio.ensure_future(role(settings))
    ending = asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    await asyncio.wait([task, ending], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        await ending
