"""`python -m tests.chaos.cluster`: one run, its summary, and an exit code as of `tests.chaos`."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys
import tempfile
from pathlib import Path
from typing import cast

from tests.chaos.cluster.database import Missing
from tests.chaos.cluster.run import FULL_MINUTES, QUICK_MINUTES, Plan, run
from tests.chaos.cluster.schedule import PACES, QUICK, Kind
from tests.faults import defects


def _kinds(text: str) -> tuple[Kind, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [kind for kind in found if kind not in PACES]
    if unknown or not found:
        raise argparse.ArgumentTypeError(f"kinds must be some of {', '.join(PACES)}, got {text!r}")
    return cast(tuple[Kind, ...], found)


def _plan(argv: list[str] | None) -> tuple[Plan, bool]:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.cluster",
        description="Kill, pause and cut off the machines of a network on PostgreSQL, and check its clients.",
    )
    add = parser.add_argument
    add("--minutes", type=float, help=f"of faults (full: {FULL_MINUTES:g}, quick: {QUICK_MINUTES:g})")
    add("--seed", type=int, help="replays a schedule; without it, a new one")
    add("--kinds", type=_kinds, help="only these kinds of faults, separated by commas")
    add("--defect", choices=sorted(defects.DEFECTS), help="plant it: the run must be violated then")
    add("--results", type=Path, default=Path(tempfile.gettempdir()) / "edn-chaos", help="kept on failure")
    add("--quick", action="store_true", help="short, with fewer kinds of faults")
    add("--quiet", action="store_true", help="do not print every fault")
    given = parser.parse_args(argv)
    plan = Plan(
        seed=secrets.randbelow(1_000_000) if given.seed is None else given.seed,
        minutes=given.minutes or (QUICK_MINUTES if given.quick else FULL_MINUTES),
        quick=given.quick,
        kinds=given.kinds or (QUICK if given.quick else tuple(PACES)),
        defect=given.defect,
        results=given.results,
    )
    return plan, given.quiet


def main(argv: list[str] | None = None) -> int:
    plan, quiet = _plan(argv)
    print(f"seed {plan.seed}; replay with\n  {plan.replay}", flush=True)
    print(f"{len(plan.schedule())} faults in about {plan.minutes:g} minutes", flush=True)

    def say(line: str) -> None:
        if not quiet:
            print(line, flush=True)

    # A shell makes its background jobs ignore SIGINT. Both signals end the run in good order.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        tally = asyncio.run(run(plan, say))
    except Missing as error:
        print(error, file=sys.stderr)
        return 2
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
