"""The command `edn check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edn.tools.console import fail, show_json

HOLDS = 0
VIOLATED = 1
UNREADABLE = 2
UNKNOWN = 3


def check(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Recording; several files must have the same clock."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Treat notifications out of a publisher's order as violations.")
    ] = False,
    within: Annotated[
        float | None,
        typer.Option(min=0, help="Maximum seconds from the publisher's answer to the notification."),
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Number of violations per kind to explain.")] = 10,
) -> None:
    """Check a recorded run: every due notification arrived, once, and no other.

    Exit codes: 0 the guarantees hold, 1 they are violated, 2 the recording is unreadable, 3 it is
    inconclusive.
    """
    # Imported here, because numpy is slow to import.
    from edn.tools.checker.judge import check_recording
    from edn.tools.checker.recording.records import RecordingError

    try:
        report = check_recording(*files, ordered=ordered, within=within, explained=show)
    except RecordingError as error:
        fail(error.detail, UNREADABLE)
    if json:
        show_json(report)
    else:
        typer.echo(report.text())
    raise typer.Exit({"holds": HOLDS, "violated": VIOLATED, "unknown": UNKNOWN}[report.verdict])
