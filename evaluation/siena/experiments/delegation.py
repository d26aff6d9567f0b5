"""Ours: What delegating a part of a sequence changes.

A server may delegate f · g of the sequence f · g · h to the neighbour that provides both, by four published
conditions. Does it find the same matches? Random histories of f, g and h in equal shares, matched by one
monitor, and by one with f · g delegated; then with the whole sequence delegated.
"""

from __future__ import annotations

import numpy as np

from evaluation.experiment import Claim, Experiment, Outcome, Progress, Series
from evaluation.figures import Canvas
from evaluation.siena.patterns import delegated_matches, matches

STEPS = "fgh"


def run(seed: int, progress: Progress, *, lengths: tuple[int, ...], histories: int) -> Outcome:
    outcome = Outcome()
    rng = np.random.default_rng([seed, 9])
    partly: list[float] = []
    wholly: list[float] = []
    for done, length in enumerate(lengths):
        progress(done, len(lengths), f"{length} letters")
        drawn = ["".join(STEPS[at] for at in row) for row in rng.integers(0, 3, (histories, length))]
        expected = [matches(one, STEPS) for one in drawn]
        for found, group in ((partly, slice(0, 2)), (wholly, slice(0, 3))):
            differing = sum(
                delegated_matches(one, STEPS, group) != right
                for one, right in zip(drawn, expected, strict=True)
            )
            found.append(differing / histories)
    outcome.series["f · g delegated"] = Series(lengths, partly)
    outcome.series["f · g · h delegated"] = Series(lengths, wholly)
    return outcome


def draw(canvas: Canvas) -> None:
    [panel] = canvas.panels()
    panel.labels("Histories with other matches", "letters", "share of random histories")
    panel.curves(["f · g delegated", "f · g · h delegated"])
    panel.axes.set_ylim(bottom=-0.02)


EXPERIMENT = Experiment(
    name="siena-delegation",
    text=__doc__,
    sizes={
        "tiny": {"lengths": (6, 12), "histories": 500},
        "quick": {"lengths": (6, 12, 24, 48), "histories": 4000},
        "full": {"lengths": (6, 9, 12, 18, 24, 36, 48), "histories": 40_000},
    },
    seeds={"tiny": 1, "quick": 2, "full": 3},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "Delegating f · g changes the matches of a tenth of the histories of 12 letters.",
            {"share of histories": lambda o: o.at("f · g delegated", 12)},
            paper=0.1,
            show="{:.1%}",
            strict=True,
        ),
        Claim(
            "The longer the history, the more often.",
            {
                "each length to the next": lambda o: [
                    later > earlier
                    for earlier, later in zip(
                        o.y("f · g delegated"), o.y("f · g delegated")[1:], strict=False
                    )
                ]
            },
            strict=True,
        ),
        Claim(
            "Delegating the whole sequence changes nothing.",
            {"all histories": lambda o: [share == 0 for share in o.y("f · g · h delegated")]},
            strict=True,
        ),
    ),
)
