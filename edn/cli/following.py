"""A repartition on its way: a bar for whoever looks, and patience."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edn.client import Client, moving

#: seconds between two looks
EVERY = 0.3
#: seconds for which the former servers are waited for, once all has moved
SETTLING = 30.0


def follow(client: Client, started: moving.Repartition) -> moving.Repartition:
    """Until it is over and, within reason, settled; Ctrl-C leaves it running."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from edn.client import moving

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("moving", total=started.total, note="")
        settled_by: float | None = None
        while True:
            now = client.run(moving.repartition(started.id))
            note = now.waiting or (f"{now.unsettled:,} not settled" if now.unsettled else "")
            progress.update(task, completed=now.moved + now.skipped, total=now.total, note=note)
            if now.over:
                settled_by = settled_by or time.monotonic() + SETTLING
                if now.state == "cancelled" or not now.unsettled or time.monotonic() > settled_by:
                    return now
            time.sleep(EVERY)
