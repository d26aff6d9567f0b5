"""Stops the dispatcher in the middle of a move, so that a test can kill a process just there.

`EDN_TEST_CHECKPOINTS` names a folder. A dispatcher that reaches a checkpoint with a file of its name in that
folder renames the file to `<name>.reached`, and waits until a test deletes it.

| checkpoint | state |
|---|---|
| `stored` | the new server has stored the subscription, the log has no record of the move |
| `recorded` | the move records are committed |
| `asked` | the old server has answered how far it is |
| `handed-over` | the new server has the buffered notifications, the old one still has them, too |
| `delivered` | the old server has delivered everything, the new one does not know |
| `arrived` | the new server delivers, the log still has the move |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.patches import wrap

VARIABLE = "EDN_TEST_CHECKPOINTS"


class Checkpoints:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def reach(self, name: str) -> None:
        """Wait here if the checkpoint is armed."""
        armed = self._folder / name
        waiting = armed.with_suffix(".reached")
        try:
            armed.rename(waiting)
        except FileNotFoundError:
            return
        while waiting.exists():  # noqa: ASYNC110  another process deletes it
            await asyncio.sleep(0.02)


def plant(folder: str) -> None:
    """Have the mover and the hand-over stop at the checkpoints that are armed; nowhere without a folder."""
    if not folder:
        return
    from dispatcher.rebalance.handover import Handover
    from dispatcher.rebalance.mover import Mover

    reach = Checkpoints(Path(folder)).reach

    def stop_before(owner: Any, name: str, checkpoint: str, is_due: Callable[[Any], bool]) -> None:
        """Stop before a method whose argument names moves that are due."""

        @wrap(owner, name)
        def _(original: Callable[..., Any]) -> Callable[..., Any]:
            async def stopping(self: Any, moves: Any) -> Any:
                if is_due(moves):
                    await reach(checkpoint)
                return await original(self, moves)

            return stopping

    def stop_after(owner: Any, name: str, checkpoint: str) -> None:
        @wrap(owner, name)
        def _(original: Callable[..., Any]) -> Callable[..., Any]:
            async def stopping(*arguments: Any) -> Any:
                result = await original(*arguments)
                await reach(checkpoint)
                return result

            return stopping

    @wrap(Mover, "_record")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        async def record(*arguments: Any) -> Any:
            await reach("stored")
            return await original(*arguments)

        return record

    stop_after(Mover, "_record", "recorded")
    stop_after(Handover, "_ask", "asked")
    stop_after(Handover, "_copy_kept", "handed-over")
    stop_before(Handover, "_release", "delivered", lambda delivered: any(one.moves for one in delivered))
    stop_before(Handover, "_forget", "arrived", bool)
