"""What an experiment is: a question, sizes, a run for one seed, claims about its outcome, and a drawing.

The claims and the figure are computed from the outcome alone, so results that are kept as JSON can be judged
and drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar

from evaluation.claims import Claim
from evaluation.drawing import Canvas
from evaluation.outcome import Outcome

#: `tiny` shows that it runs, `quick` is for `make evaluate`, `full` comes near to the published sizes
Scale = Literal["tiny", "quick", "full"]

S = TypeVar("S")


class Progress(Protocol):
    def __call__(self, done: int, total: int, what: str) -> None: ...


def silent(done: int, total: int, what: str) -> None:
    """For whoever does not watch."""


class Network(TypedDict):
    """Arguments of a `Setup`."""

    servers: int
    #: subscriptions
    per_server: int
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSizes:
    """The size of a network. Experiments that vary more than that add fields, or have sizes of their own."""

    servers: int
    per_server: int
    events: int

    @property
    def network(self) -> Network:
        return {"servers": self.servers, "per_server": self.per_server, "events": self.events}


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
    seeds: Mapping[Scale, int] = field(default_factory=lambda: {"tiny": 1, "quick": 2, "full": 2})
    run: Callable[[S, int, Progress], Outcome]
    draw: Callable[[Canvas, Sequence[Outcome]], None]
    claims: tuple[Claim, ...]
    #: needs real processes and a machine of its own, so it runs only when it is asked for
    live: bool = False


AnyExperiment = Experiment[Any]
