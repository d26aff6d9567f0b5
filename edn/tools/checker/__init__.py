"""Decides from a recording of what clients saw whether the network kept its promise.

| module | what it gives |
|---|---|
| `recording.recorder` | `Recorder`: writes a recording, line by line, from threads or asyncio |
| `recording.records`, `recording.reading` | the lines of a recording, and `read_recording` |
| `values`, `columns` | what a filter means, written apart from the product's own reading |
| `timeline` | when an operation can have taken effect, seen from outside |
| `published`, `history` | records become events and the lives of subscriptions |
| `obligations` | must, may, must not |
| `doubts`, `arrivals` | what a lack of notifications proves; once, in time, in order |
| `lives`, `judge` | one subscription, and all of them: `check_recording` |
| `verdicts`, `stories` | the `Report`, and how it explains itself |
| `command` | `edn check` |

Nothing in the network imports this package, and it imports nothing of the network's that reads or matches
filters. A recording is described in `docs/checking.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edn.tools.checker.recording.recorder import Operation, Recorder
from edn.tools.checker.recording.records import RecordingError

if TYPE_CHECKING:
    from edn.tools.checker.judge import check_recording
    from edn.tools.checker.verdicts import Report, Verdict, Violation

__all__ = ["Operation", "Recorder", "RecordingError", "Report", "Verdict", "Violation", "check_recording"]


def __getattr__(name: str) -> Any:
    # The judge brings numpy: a program that only records, or the command line, need not wait for it.
    if name == "check_recording":
        from edn.tools.checker.judge import check_recording

        return check_recording
    if name in ("Report", "Verdict", "Violation"):
        from edn.tools.checker import verdicts

        return getattr(verdicts, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
