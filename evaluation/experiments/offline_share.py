"""How much it helps to partition the first 30, 50 or 100 % of the subscriptions offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from evaluation.claims import Claim, Number, Reading, falls, readings, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, NetworkSizes, Progress
from evaluation.outcome import Outcome, Series
from evaluation.placing import Offline, Online, Setup, ratios_and_loads, sweep

SHARES = (0.0, 0.1, 0.3, 0.5, 0.75, 1.0)
PUBLISHED = {0.3: 0.07, 0.5: 0.20, 1.0: 0.30}
#: how the online part is done: the text names neither start nor ties nor N_b
READINGS: dict[str, Online] = {
    "ten spread, ties to the less loaded": Online(),
    "ties by chance": Online(ties="random"),
    "N_b = 64": Online(bound=64),
}


def run(sizes: NetworkSizes, seed: int, progress: Progress) -> Outcome:
    setup = Setup(**sizes.network)

    def case(online: Online, part: float) -> tuple[Setup, Offline | Online]:
        return setup, Offline("rtree") if part == 1.0 else replace(online, offline=part)

    found = sweep(READINGS, SHARES, case, seed, progress, "{name}, {x:.0%} offline")
    return Outcome({}, ratios_and_loads(SHARES, found))


def _saved(outcome: Outcome, reading: str, part: float) -> float:
    return 1 - outcome.at(reading, part) / outcome.at(reading, 0.0)


def _savings(outcome: Outcome, reading: str) -> Series:
    return Series(list(SHARES), [_saved(outcome, reading, part) for part in SHARES])


def _saving(part: float) -> tuple[Reading, ...]:
    return readings(READINGS, lambda outcome, name: [_saved(outcome, name, part)])


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    left, right = canvas.panels(2)
    left.labels("Saved beside online alone", "share partitioned offline", "hit ratio saved")
    right.labels("How uneven the loads are", "share partitioned offline", "largest load ÷ average")
    for colour, name in enumerate(READINGS):
        left.derived(name, partial(_savings, reading=name), colour=colour)
        right.curve(f"load of {name}", name)
    for part, saved in PUBLISHED.items():
        left.published(f"{saved:.0%} at {part:.0%}", x=part, y=saved)


EXPERIMENT = Experiment(
    name="offline-share",
    line="30/50/100 % offline",
    title="A share of the subscriptions partitioned offline",
    question=(
        "How much less is sent, beside online alone, when part of the subscriptions is partitioned offline "
        "first?"
    ),
    setting="The setting of Figure 3 with 10 servers.",
    sizes={
        "tiny": NetworkSizes(servers=3, per_server=60, events=200),
        "quick": NetworkSizes(servers=10, per_server=1000, events=2000),
        "full": NetworkSizes(servers=10, per_server=5000, events=4000),
    },
    run=run,
    draw=draw,
    claims=(
        *(
            Claim(
                text=f"With {part:.0%} of them offline the hit ratio is {saved:.0%} lower than online.",
                paper=Number(saved, "it is lower", lambda ours: ours > 0),
                readings=_saving(part),
                show="{:.0%}",
                why=(
                    "All three are relative to online from nothing, whose hit ratio depends on start and "
                    "ties (see Figure 3) more than on anything else."
                ),
            )
            for part, saved in PUBLISHED.items()
        ),
        Claim(
            text="The more is partitioned offline, the lower the hit ratio.",
            readings=readings(READINGS, lambda o, name: share(*falls(o.series[name].y))),
            why=(
                "Online from nothing leaves servers nearly empty, which the hit ratio rewards; a first tenth "
                "that is spread evenly takes that away before it gives anything."
            ),
        ),
    ),
)
