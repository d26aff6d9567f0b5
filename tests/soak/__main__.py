"""Runs a network under churn and fails if memory, descriptors, threads or files grow."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.soak.growth import LENIENCY, STRICT_SECONDS, TOLERANCES
from tests.soak.page import page, table
from tests.soak.run import Outcome, run


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=30.0, help="%(default)s; below ten, growth is judged leniently")
    add("--seed", type=int, help="of what the tenants do; timing decides the rest")
    add("--servers", type=int, default=2)
    add("--results", type=Path, default=Path("soak-results"), help="folder of the results (%(default)s)")
    given = parser.parse_args(argv)
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    print(f"seed {seed}, {given.minutes:g} minutes", flush=True)

    def say(line: str) -> None:
        print(line, flush=True)

    with tempfile.TemporaryDirectory(prefix="edn-soak-") as folder:
        outcome = run(Path(folder), seed, given.minutes * 60, given.servers, say)
    given.results.mkdir(parents=True, exist_ok=True)
    return conclude(outcome, seed, given.minutes, given.results)


def conclude(outcome: Outcome, seed: int, minutes: float, results: Path) -> int:
    """Prints and writes everything; the exit code."""
    found = outcome.growth()
    failures = _failures(outcome)
    failures += [f"{one.process}: {one.figure} grows" for one in found if one.grows]
    title = f"soak of {minutes:g} minutes, seed {seed}"
    summary = {
        "seed": seed,
        "minutes": minutes,
        "failures": failures,
        "tolerances": {name: asdict(one) for name, one in TOLERANCES.items()},
        "growth": [asdict(one) for one in found],
        "answers": {
            f"{name} {status}": count for (name, status), count in sorted(outcome.figures.answers.items())
        },
        "events": outcome.figures.events,
        "stream_lines": outcome.figures.stream_lines,
        "surprises": outcome.figures.surprises,
        "backlog": outcome.backlog,
        "samples": {name: {"times": one.times, **one.figures} for name, one in outcome.samples.items()},
    }
    (results / "soak.json").write_text(json.dumps(summary, indent=1) + "\n")
    (results / "soak.html").write_text(page(title, found, outcome.samples))
    print(_answers(outcome))
    print(table(found))
    if minutes * 60 < STRICT_SECONDS:
        print(f"shorter than {STRICT_SECONDS / 60:g} minutes: growth may be {LENIENCY:g} times the tolerance")
    for failure in failures:
        print(f"FAILED: {failure}")
    print(f"results: {results / 'soak.html'}, {results / 'soak.json'}")
    return 1 if failures else 0


def _failures(outcome: Outcome) -> list[str]:
    figures = outcome.figures
    found = [f"process {name} ended" for name in outcome.deaths]
    found += [
        f"unexpected answer to {what}: {example}" for what, example in sorted(figures.surprises.items())
    ]
    found += [f"{name}: never succeeded" for name in figures.operations() if not figures.succeeded(name)]
    if not outcome.growth():
        found.append("too few samples to judge")
    return found


def _answers(outcome: Outcome) -> str:
    figures = outcome.figures
    lines = [f"{figures.events} events, {figures.stream_lines} lines of streams"]
    for name in figures.operations():
        counts = {status: count for (what, status), count in sorted(figures.answers.items()) if what == name}
        lines.append(f"  {name:<15}" + "  ".join(f"{status}: {count}" for status, count in counts.items()))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
