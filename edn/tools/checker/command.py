"""`edn check`: the verdict on a recording, as text or JSON, and as an exit code."""

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
        typer.Argument(metavar="FILE...", help="A recording; several files if they ran on one clock."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Being notified out of a publisher's order is a violation, too.")
    ] = False,
    within: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds from the publisher's answer within which a notification must come."
        ),
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="How many violations of each kind to explain.")] = 10,
) -> None:
    """Check a recorded run: was everything notified that had to be, nothing else, and once?

    Exit codes: 0 the promise holds, 1 it is violated, 2 the recording cannot be read, 3 it decides nothing.
    """
    # Loaded only now, as numpy takes its time.
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
