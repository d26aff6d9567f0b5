"""30/50/100 % offline: A share of the subscriptions partitioned offline.

How much less is sent than with online placement alone, when part of the subscriptions is partitioned offline
first? The setting of Figure 3 with 10 servers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from evaluation.experiment import Claim, Experiment, Measure, Outcome, Progress, Series, falls, readings
from evaluation.figures import Canvas
from evaluation.simulated_placement import METHODS, Online, Setup, sweep

SHARES = (0.0, 0.1, 0.3, 0.5, 0.75, 1.0)
PUBLISHED = {0.3: 0.07, 0.5: 0.20, 1.0: 0.30}
#: variants of the online part: the text names neither start nor tie rule nor N_b
READINGS: dict[str, Online] = {
    "ten spread, ties to the less loaded": Online(),
    "ties by chance": Online(ties="random"),
    "N_b = 64": Online(bound=64),
}


def run(seed: int, progress: Progress, **network: Any) -> Outcome:
    setup = Setup(**network)
    cases = {
        name: [
            *((setup, replace(online, offline=share)) for share in SHARES[:-1]),
            (setup, METHODS["R-tree offline"]),
        ]
        for name, online in READINGS.items()
    }
    return sweep(cases, SHARES, seed, progress)


def _savings(outcome: Outcome, reading: str) -> Series:
    y = outcome.y(reading)
    return Series(SHARES, [1 - one / y[0] for one in y])


def _saving(share: float) -> dict[str, Measure]:
    return readings(READINGS, lambda outcome, name: _savings(outcome, name).at(share))


def draw(canvas: Canvas) -> None:
    left, right = canvas.panels(2)
    left.labels("Saved compared with online alone", "share partitioned offline", "hit ratio saved")
    right.labels("How uneven the loads are", "share partitioned offline", "largest load ÷ average")
    for colour, name in enumerate(READINGS):
        left.derived(name, partial(_savings, reading=name), colour=colour)
        right.curve(f"load of {name}", name)
    for share, saved in PUBLISHED.items():
        left.stars(f"published: {saved:.0%} at {share:.0%}", [share], [saved])


EXPERIMENT = Experiment(
    name="offline-share",
    text=__doc__,
    sizes={
        "tiny": {"servers": 3, "per_server": 60, "events": 200},
        "quick": {"servers": 10, "per_server": 1000, "events": 2000},
        "full": {"servers": 10, "per_server": 5000, "events": 4000},
    },
    run=run,
    draw=draw,
    claims=(
        *(
            Claim(
                f"With {share:.0%} of them offline the hit ratio is {saved:.0%} lower than online.",
                _saving(share),
                paper=saved,
                partly=lambda ours: ours > 0,
                show="{:.0%}",
                why="All three are relative to online placement from an empty network, whose hit ratio "
                "depends mostly on start and tie rule (see Figure 3).",
            )
            for share, saved in PUBLISHED.items()
        ),
        Claim(
            "The more is partitioned offline, the lower the hit ratio.",
            readings(READINGS, lambda o, name: falls(o.y(name))),
            why="Online placement from an empty network leaves servers nearly empty, which the hit ratio "
            "rewards. A first tenth that is spread evenly removes that advantage before it adds its own.",
        ),
    ),
)
