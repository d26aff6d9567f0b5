"""Compares a network with an independent matcher; the exit code is 1 if they differ anywhere."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.differential.plan import draw
from tests.differential.run import run
from tests.faults import defects


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, help="replays a run; without it, fresh ones")
    add("--seeds", type=int, default=1, help="how many fresh seeds (%(default)s)")
    add("--filters", type=int, default=350, help="per seed (%(default)s)")
    add("--events", type=int, default=400, help="per seed (%(default)s)")
    add("--servers", type=int, default=3)
    add("--defect", help="plant a defect of tests.faults: the run must find differences then")
    given = parser.parse_args(argv)
    if given.defect:
        os.environ[defects.VARIABLE] = given.defect
    fresh = [secrets.randbelow(1_000_000) for _ in range(given.seeds)]
    due = differences = 0
    for seed in fresh if given.seed is None else [given.seed]:
        began = time.monotonic()
        plan = draw(seed, filters=given.filters, events=given.events)
        print(f"seed {seed}: python -m tests.differential --seed {seed} ", end="")
        print(f"--filters {given.filters} --events {given.events} --servers {given.servers}", flush=True)
        with tempfile.TemporaryDirectory(prefix="edn-differential-") as folder:
            verdict = run(plan, Path(folder), servers=given.servers)
        print(f"  {verdict.line()}; {time.monotonic() - began:.0f} s", flush=True)
        if verdict.differences:
            print(verdict.explain(plan))
        due += verdict.due
        differences += verdict.differences
    print(f"{due} pairs due, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
