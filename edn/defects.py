"""Defects that a test plants on purpose, to see that it would be noticed. For tests only.

`EDN_TEST_DEFECT` in the environment of a process names one, or several with commas. It is read once, when
this module is imported; a name that is not known keeps the process from starting. A process with a defect
loses, repeats or invents notifications and says so, loudly, when it starts (`announce`).

Where a defect would show itself only in an instant that no test can hit, code that asks for it also waits
there for `WINDOW` seconds, so that a killed process is often killed in that instant.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, get_args

import structlog

logger = structlog.get_logger()

VARIABLE = "EDN_TEST_DEFECT"

Defect = Literal[
    "acknowledge-before-commit",
    "route-before-commit",
    "skip-the-widening",
    "accept-an-old-snapshot",
    "cursor-before-outbox",
    "forget-the-join",
    "move-before-widening",
    "trust-the-wall-clock",
]

#: what each one does
DEFECTS: Mapping[str, str] = {
    "acknowledge-before-commit": "publishers are answered before their events are in the log",
    "route-before-commit": "events go to the servers before they are in the log",
    "skip-the-widening": "a new subscription's rectangles are not routed to until the next snapshot",
    "accept-an-old-snapshot": "a snapshot replaces widenings that are newer than it",
    "cursor-before-outbox": "a server commits how far it has read before the notifications that follow",
    "forget-the-join": "a returning server's stream goes on at the log's end, the gap unseen",
    "move-before-widening": "a subscription moves to a server before events for it are routed there",
    "trust-the-wall-clock": "ages and expiries are read from the wall clock, wherever it jumps",
}
assert set(DEFECTS) == set(get_args(Defect))

#: seconds that a planted defect waits where it can be hit
WINDOW = 0.25


def parse(text: str) -> frozenset[str]:
    """The defects that a value of the variable names; ValueError for one that there is not."""
    named = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = sorted(named - DEFECTS.keys())
    if unknown:
        raise ValueError(f'{VARIABLE} names "{unknown[0]}"; there are {", ".join(sorted(DEFECTS))}')
    return named


_PLANTED = parse(os.environ.get(VARIABLE, ""))


def planted(defect: Defect) -> bool:
    """Whether this process shall be wrong in this way. False in every process that is not under test."""
    return defect in _PLANTED


def announce() -> None:
    """Say at a process's start what is wrong with it."""
    for defect in sorted(_PLANTED):
        logger.critical("A DEFECT IS PLANTED, for tests only", defect=defect, effect=DEFECTS[defect])
