"""How much it helps to partition the first 30, 50 or 100 % of the subscriptions offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.claims import Claim, Number, Order, Reading, falls, readings, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, Outcome, Progress, Series
from evaluation.placing import Offline, Online, Setup, place

SHARES = (0.0, 0.1, 0.3, 0.5, 0.75, 1.0)
PUBLISHED = {0.3: 0.07, 0.5: 0.20, 1.0: 0.30}
#: how the online part is done: the text names neither start nor ties nor N_b
READINGS: dict[str, Online] = {
    "ten spread, ties to the less loaded": Online(),
    "ties by chance": Online(ties="random"),
    "N_b = 64": Online(bound=64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    servers: int
    per_server: int
    events: int


def run(sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    setup = Setup(servers=sizes.servers, per_server=sizes.per_server, events=sizes.events)
    series = {}
    for count, (name, online) in enumerate(READINGS.items()):
        ratios, loads = [], []
        for done, part in enumerate(SHARES):
            progress(count * len(SHARES) + done, len(READINGS) * len(SHARES), f"{name}, {part:.0%} offline")
            method: Offline | Online = (
                Offline("rtree")
                if part == 1.0
                else Online(offline=part, bound=online.bound, ties=online.ties)
            )
            placed = place(setup, seed, method)
            ratios.append(placed.hit_ratio)
            loads.append(placed.imbalance)
        series[name] = Series(list(SHARES), ratios)
        series[f"load of {name}"] = Series(list(SHARES), loads)
    return Outcome({}, series)


def _saved(outcome: Outcome, reading: str, part: float) -> float:
    return 1 - outcome.at(reading, part) / outcome.at(reading, 0.0)


def _saving(part: float) -> tuple[Reading, ...]:
    return readings(READINGS, lambda outcome, name: [_saved(outcome, name, part)])


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    left, right = canvas.panels(2)
    left.labels("Saved beside online alone", "share partitioned offline", "hit ratio saved")
    right.labels("How uneven the loads are", "share partitioned offline", "largest load ÷ average")
    for colour, name in enumerate(READINGS):
        derived = [
            Outcome({}, {name: Series(list(SHARES), [_saved(one, name, part) for part in SHARES])})
            for one in outcomes
        ]
        left.of(derived).curve(name, colour=colour)
        right.curve(f"load of {name}", name)
    for part, saved in PUBLISHED.items():
        left.published(f"{saved:.0%} at {part:.0%}", x=part, y=saved)
    left.legend()
    right.legend()


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
        "tiny": Sizes(servers=3, per_server=60, events=200),
        "quick": Sizes(servers=10, per_server=1000, events=2000),
        "full": Sizes(servers=10, per_server=5000, events=4000),
    },
    seeds={"tiny": 1, "quick": 2, "full": 2},
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
            paper=Order(),
            readings=readings(READINGS, lambda o, name: share(*falls(o.series[name].y))),
            why=(
                "Online from nothing leaves servers nearly empty, which the hit ratio rewards; a first tenth "
                "that is spread evenly takes that away before it gives anything."
            ),
        ),
    ),
)
