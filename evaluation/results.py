"""Results of experiments as JSON: one file per experiment, with sizes, seeds, machine and date."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from edn.errors import InvalidInput
from edn.tools.bench.report import machine
from evaluation.experiment import Experiment, Outcome, Progress, Scale, Series, judge

#: significant digits in a file: more would only make files differ
DIGITS = 6


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an experiment."""

    experiment: str
    scale: str
    sizes: dict[str, Any]
    seeds: list[int]
    machine: str
    #: RFC 3339
    date: str
    #: processor time of all seeds
    cpu_seconds: float
    #: one per seed
    outcomes: list[Outcome]


def run(experiment: Experiment, scale: Scale, seeds: list[int], progress: Progress) -> Record:
    """Runs all seeds of one experiment."""
    if scale not in experiment.sizes:
        raise InvalidInput(f'scale must be one of {", ".join(experiment.sizes)}, got "{scale}"')
    if not seeds:
        raise InvalidInput("seeds must be 1 or more, got 0")
    sizes = experiment.sizes[scale]
    began = time.process_time()
    outcomes = []
    for turn, seed in enumerate(seeds):

        def overall(done: int, total: int, what: str, turn: int = turn) -> None:
            progress(turn * total + done, len(seeds) * total, what)

        outcomes.append(_rounded(experiment.run(seed, overall, **sizes)))
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


def read(experiment: Experiment, folder: Path) -> Record | None:
    """Reads a stored result; None if the experiment was not run."""
    path = folder / f"{experiment.name}.json"
    if not path.exists():
        return None
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
        for claim in experiment.claims:
            judge(claim, record.outcomes)
    except msgspec.DecodeError as problem:
        raise InvalidInput(
            f"{path} is not a result of an experiment: {problem}; run the experiment again"
        ) from None
    except KeyError as missing:
        raise InvalidInput(
            f"{path} has no {missing}: it is from another version of the experiment; run the experiment again"
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
