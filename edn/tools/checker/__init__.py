"""Decides from a recording of clients' requests and notifications whether the network kept its guarantees.

| module | contents |
|---|---|
| `recording.recorder` | `Recorder`: writes a recording, line by line, from threads or asyncio |
| `recording.records`, `recording.reading` | the lines of a recording, and `read_recording` |
| `values`, `columns` | the meaning of filters, implemented independently of the product |
| `timeline` | when an operation can have taken effect |
| `published`, `history` | events and histories of subscriptions from records |
| `obligations` | which notifications must, may and must not arrive |
| `doubts`, `arrivals` | whether a missing notification is conclusive; once, in time, in order |
| `lives`, `judge` | one subscription, and all of them: `check_recording` |
| `advertising` | whether accepted and refused events agree with the advertisements |
| `sequences` | whether complete sequences, and only these, were notified |
| `standing` | answers about subscriptions |
| `verdicts`, `stories` | the `Report` and its explanations |
| `command` | `edn check` |

No service imports this package, and it imports nothing of the product that parses or matches filters.
`docs/checking.md` describes recordings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edn.tools.checker.recording.recorder import Operation, Recorder
from edn.tools.checker.recording.records import RecordingError
from edn.tools.checker.verdicts import Report, Verdict, Violation

if TYPE_CHECKING:
    from edn.tools.checker.judge import check_recording

__all__ = ["Operation", "Recorder", "RecordingError", "Report", "Verdict", "Violation", "check_recording"]


def __getattr__(name: str) -> Any:
    # The judge imports numpy, which is slow: recorders and the command line do not need it.
    if name == "check_recording":
        from edn.tools.checker.judge import check_recording

        return check_recording
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
