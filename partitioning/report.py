"""The report of a plan: loads, bounding volumes and hit ratios, before and after.

The hit ratio is the share of pairs of event and server that are forwarded, estimated on a sample of events
with precise summaries. It rewards imbalance, because an empty server gets no events, so it is always shown
with the loads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from partitioning.contents import Contents
from partitioning.survey import Part


class ServerState(msgspec.Struct, frozen=True):
    server: str
    subscriptions: int
    #: volume of the bounding rectangle, as a share of the space
    volume: float
    #: share of the sampled events that are sent to it
    hit_ratio: float


class State(msgspec.Struct, frozen=True):
    servers: list[ServerState]
    #: mean of the servers' hit ratios
    hit_ratio: float
    #: largest load as a multiple of the average
    imbalance: float
    #: sum of the bounding volumes
    volume: float


class Report(msgspec.Struct, frozen=True):
    method: str
    subscriptions: int
    dimensions: int
    capacity: int
    #: size of the sample, and whether it was given or random
    events: int
    events_given: bool
    #: subscriptions that would migrate
    moved: int
    before: State | None
    after: State
    seconds: float

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2)


def state(names: Sequence[str], parts: Sequence[Part], contents: Contents) -> State:
    """Compute the state from a survey whose contents have bounding rectangles and events."""
    space, sample = contents.space, contents.sample
    assert space is not None
    assert sample is not None
    servers = []
    for name, part in zip(names, parts, strict=True):
        volume = float(space.volume(*contents.box(part.content))) / space.whole if part.count else 0.0
        hit_ratio = float(contents.events(part.content)) / sample.count
        servers.append(ServerState(name, part.count, volume, hit_ratio))
    loads = np.array([one.subscriptions for one in servers])
    return State(
        servers,
        float(np.mean([one.hit_ratio for one in servers])),
        float(loads.max() / loads.mean()) if loads.any() else 0.0,
        sum(one.volume for one in servers),
    )


def draw(report: Report, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{report.method}: {report.subscriptions:,} subscriptions, {report.moved:,} would move")
    panels = figure.subplots(3, 1)
    states = [("before", report.before, "0.7"), ("after", report.after, "tab:blue")]
    columns: list[tuple[str, Callable[[ServerState], float]]] = [
        ("subscriptions", lambda one: one.subscriptions),
        ("bounding volume, share of the space", lambda one: one.volume),
        ("hit ratio", lambda one: one.hit_ratio),
    ]
    names = sorted({one.server for _, found, _ in states if found is not None for one in found.servers})
    places = {name: i for i, name in enumerate(names)}
    for panel, (title, value) in zip(panels, columns, strict=True):
        for offset, (label, found, colour) in enumerate(states):
            if found is not None:
                at = [places[one.server] + 0.4 * offset - 0.2 for one in found.servers]
                panel.bar(at, [value(one) for one in found.servers], 0.38, color=colour, label=label)
        panel.set_ylabel(title)
        panel.set_xticks(range(len(names)), names if len(names) <= 20 else [""] * len(names), fontsize=8)
    mean = f"mean hit ratio {report.after.hit_ratio:.3f}"
    if report.before is not None:
        mean = f"mean hit ratio {report.before.hit_ratio:.3f} before, {report.after.hit_ratio:.3f} after"
    panels[2].set_title(mean, fontsize=10)
    panels[0].legend()
    figure.savefig(path, dpi=120)
