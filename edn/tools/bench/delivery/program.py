"""Starts programs of the benchmark as processes that end with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

#: seconds that a program may take to end
STOP_SECONDS = 20.0


@contextmanager
def program(
    module: str, arguments: Sequence[str] = (), *, settings: object = None, log: Path | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """Runs `python -m module` until the block ends; yields it with its first line of output, JSON.

    `settings` are written to its standard input as one line of JSON. The input stays open: its end tells the
    program to stop, also when this process is killed. Without a `log` errors are printed.
    """
    with log.open("ab") if log is not None else nullcontext() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if settings is not None:
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{module} did not start: {_end_of(log)}")
        yield process, json.loads(line)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdin.close()
        process.stdout.close()


def _end_of(log: Path | None) -> str:
    return "see above" if log is None else log.read_text(errors="replace")[-2000:]
