"""What an experiment is: a question, sizes, a run for one seed, claims about its outcome, and a drawing.

A run gives plain numbers and curves, by name. Everything that is said about them (the claims, the figure, the
document) is computed from those alone, so results that are kept as JSON can be judged and drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from evaluation.claims import Claim
    from evaluation.drawing import Canvas

#: `tiny` shows that it runs, `quick` is for `make evaluate`, `full` comes near to the published sizes
Scale = Literal["tiny", "quick", "full"]

S = TypeVar("S")


class Series(msgspec.Struct, frozen=True):
    """A curve."""

    x: list[float]
    y: list[float]

    def at(self, x: float) -> float:
        return self.y[self.x.index(x)]


class Outcome(msgspec.Struct, frozen=True):
    """What one seed gave, or the mean of several."""

    values: dict[str, float] = {}
    series: dict[str, Series] = {}

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def at(self, name: str, x: float) -> float:
        return self.series[name].at(x)


class Progress(Protocol):
    def __call__(self, done: int, total: int, what: str) -> None: ...


def silent(done: int, total: int, what: str) -> None:
    """For whoever does not watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment(Generic[S]):
    #: as it is called on the command line
    name: str
    #: the line of the published evaluation that it belongs to, or "ours"
    line: str
    title: str
    #: what is asked, in a sentence or two
    question: str
    #: how the published text was read where it is silent, and what is different here
    setting: str
    sizes: Mapping[Scale, S]
    seeds: Mapping[Scale, int]
    run: Callable[[S, int, Progress], Outcome]
    draw: Callable[[Canvas, Sequence[Outcome]], None]
    claims: tuple[Claim, ...]
    #: needs real processes and a machine of its own, so it runs only when it is asked for
    live: bool = False


AnyExperiment = Experiment[Any]


def mean(outcomes: Sequence[Outcome]) -> Outcome:
    """Number by number, point by point."""
    first = outcomes[0]
    return Outcome(
        {name: fmean(one.values[name] for one in outcomes) for name in first.values},
        {
            name: Series(
                # The same for all seeds; a mean of it might differ in its last bit.
                first.series[name].x,
                [fmean(y) for y in zip(*(one.series[name].y for one in outcomes), strict=True)],
            )
            for name in first.series
        },
    )
