"""What every target begins with: its seeds, and the files in `corpus/`, each named for what it is about."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.targets import SEEDS

FOLDER = Path(__file__).with_name("corpus")


def inputs_of(target: str) -> list[bytes]:
    kept = sorted((FOLDER / target).iterdir())
    return [*SEEDS[target], *(path.read_bytes() for path in kept)]
