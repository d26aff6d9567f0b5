"""`python -m tests.chaos`: one run, its summary, and an exit code.

0: it holds, and enough was done to say so. 1: violated, or the network never came to rest. 3: nothing is
wrong, but the recording leaves something open, or the run reached too few kills, events or changes.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import Plan, run
from tests.chaos.tally import FULL_MINUTES, Tally
from tests.faults import defects

_QUICK_MINUTES = 0.75


def _plan(argv: list[str] | None) -> tuple[Plan, bool]:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Kill and cut off a network under load, and check what its clients saw.",
    )
    add = parser.add_argument
    add("--minutes", type=float, help=f"of faults (full: {FULL_MINUTES:g}, quick: {_QUICK_MINUTES:g})")
    add("--seed", type=int, help="replays a schedule; without it, a new one")
    add("--servers", type=int, default=4)
    add("--defect", choices=sorted(defects.DEFECTS), help="plant it: the run must be violated then")
    add("--results", type=Path, default=Path(tempfile.gettempdir()) / "edn-chaos", help="kept on failure")
    add("--quick", action="store_true", help="short, and content with less")
    add("--quiet", action="store_true", help="do not print every fault")
    given = parser.parse_args(argv)
    plan = Plan(
        seed=secrets.randbelow(1_000_000) if given.seed is None else given.seed,
        minutes=given.minutes or (_QUICK_MINUTES if given.quick else FULL_MINUTES),
        servers=given.servers,
        defect=given.defect,
        quick=given.quick,
        results=given.results,
    )
    return plan, given.quiet


def main(argv: list[str] | None = None) -> int:
    plan, quiet = _plan(argv)
    print(f"seed {plan.seed}; replay with\n  {plan.replay}", flush=True)
    print(f"{len(plan.schedule())} faults in {plan.minutes:g} minutes", flush=True)

    def say(line: str) -> None:
        if not quiet:
            print(line, flush=True)

    tally = asyncio.run(run(plan, say))
    return _conclude(plan, tally)


def _conclude(plan: Plan, tally: Tally) -> int:
    code = tally.exit_code(plan.required)
    if tally.report is not None and code:
        print(tally.report.text())
    print(tally.table(plan.required))
    if tally.recording is not None:
        print(f"recording: {tally.recording} (edn check {tally.recording})")
        print(f"replay: {tally.replay}")
    return code


if __name__ == "__main__":
    sys.exit(main())
