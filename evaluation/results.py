"""What experiments gave, kept as JSON: one file an experiment, with sizes, seeds, machine and date."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from edn.errors import InvalidInput
from edn.tools.bench.report import machine
from evaluation.claims import judge
from evaluation.experiment import AnyExperiment, Progress, Scale
from evaluation.outcome import Outcome, Series

#: significant digits that are kept: more would only make files differ
DIGITS = 6


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment as it was run."""

    experiment: str
    scale: str
    sizes: dict[str, Any]
    seeds: list[int]
    machine: str
    #: RFC 3339
    date: str
    #: processor time of all seeds
    cpu_seconds: float
    #: one a seed
    outcomes: list[Outcome]


@dataclass(frozen=True, slots=True)
class _Turn:
    """The progress of one seed as part of that of all."""

    turn: int
    turns: int
    progress: Progress

    def __call__(self, done: int, total: int, what: str) -> None:
        self.progress(self.turn * total + done, self.turns * total, what)


def run(experiment: AnyExperiment, scale: Scale, seeds: list[int], progress: Progress) -> Record:
    """All seeds of one experiment."""
    sizes = experiment.sizes[scale]
    began = time.process_time()
    outcomes = [
        _rounded(experiment.run(sizes, seed, _Turn(turn, len(seeds), progress)))
        for turn, seed in enumerate(seeds)
    ]
    return Record(
        experiment=experiment.name,
        scale=scale,
        sizes=msgspec.json.decode(msgspec.json.encode(sizes)),
        seeds=seeds,
        machine=machine(),
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        cpu_seconds=round(time.process_time() - began, 1),
        outcomes=outcomes,
    )


def write(record: Record, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.experiment}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return path


def read(experiment: AnyExperiment, folder: Path) -> Record | None:
    """What was kept; None where it was not run."""
    path = folder / f"{experiment.name}.json"
    if not path.exists():
        return None
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except msgspec.DecodeError as problem:
        raise InvalidInput(
            f"{path} is no result of this program: {problem}; run the experiment again"
        ) from None
    try:
        for claim in experiment.claims:
            judge(claim, record.outcomes)
    except KeyError as lacking:
        raise InvalidInput(
            f"{path} lacks {lacking}: it is of another version of the experiment; run it again"
        ) from None
    return record


def _rounded(outcome: Outcome) -> Outcome:
    def short(value: float) -> float:
        return float(f"{value:.{DIGITS}g}")

    return Outcome(
        {name: short(value) for name, value in outcome.values.items()},
        {
            name: Series([short(x) for x in one.x], [short(y) for y in one.y])
            for name, one in outcome.series.items()
        },
    )
