"""The wall clock of processes under test, stepped: see `edn.runtime.clock`."""

from __future__ import annotations

from pathlib import Path


def set_clock(file: Path, seconds: float) -> None:
    """How far the processes that read this file are from the true time; in one step, so that nobody reads
    half a number."""
    fresh = file.with_suffix(".new")
    fresh.write_text(str(seconds))
    fresh.replace(file)
