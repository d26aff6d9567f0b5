"""The sustainable rate of a running network at each precision, compared with the throughput model.

Unless a width is given, the link is capped so that the model's TP_D and TP_OL cross in the middle: the
published Figure 12 from our own system. Precisions are measured in several rounds of all of them, so a slow
moment of the machine slows all; medians count. The model's parameters are those that the dispatcher measures
of itself meanwhile. The prediction for a round is scaled by the share of a core that the dispatcher got in
it, which the machine decides and not the model.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from edn.tools.bench.report import Progress, new_axes, rows, save
from edn.tools.bench.saturation import GRID, Passed, Saturated, Size, saturated
from edn.tools.bench.workloads import uniform


class Row(msgspec.Struct, frozen=True):
    """One precision."""

    precision: float
    #: events per second, the median and all rounds
    measured: float
    rounds: list[float]
    predicted: float
    dispatcher: float | None
    outgoing: float | None
    servers: float | None
    bottleneck: str
    hit_ratio: float
    core: float

    @property
    def ratio(self) -> float:
        return self.measured / self.predicted


class Capacity(msgspec.Struct, frozen=True):
    bytes_per_second: float
    parameters: dict[str, Any]
    rows: list[Row]


def crossing(survey: dict[str, Any], precision: float) -> float:
    """Returns the bytes per second at which link and dispatcher carry the same at a precision."""
    at, parameters = _point(survey, precision), survey["parameters"]
    return float(at["dispatcher"] * at["hit_ratio"] * parameters["message_bytes"] * parameters["servers"])


def parameters_under_load(network: Saturated, seconds: float) -> dict[str, Any]:
    """Returns the dispatcher's survey after some intervals of saturation at precision 0.5."""
    network.at(0.5, settle=1.0, seconds=seconds)
    return network.survey()


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _title(result: Capacity) -> str:
    return f"Capacity, {result.bytes_per_second / 1e6:.2f} MB/s outgoing"


show = rows(
    _title,
    ("precision", "{r.precision:g}"),
    ("measured events/s", lambda r: _rate(r.measured)),
    ("model", lambda r: _rate(r.predicted)),
    ("÷", "{r.ratio:.2f}"),
    ("TP_D", lambda r: _rate(r.dispatcher)),
    ("TP_OL", lambda r: _rate(r.outgoing)),
    ("TP_S", lambda r: _rate(r.servers)),
    ("bound by", "{r.bottleneck}"),
    ("R", "{r.hit_ratio:.3f}"),
    ("core", "{r.core:.2f}"),
    of="rows",
)


def run(
    *,
    servers: int,
    subscriptions: int,
    router: str = "rtree",
    interval: float = 3.0,
    seconds: float,
    rounds: int,
    bytes_per_second: float | None,
    seed: int,
    progress: Progress,
) -> Capacity:
    """`seconds`: of each measurement; `rounds`: of all precisions."""
    size = Size(servers=servers, subscriptions=subscriptions, router=router, interval=interval)
    workload = uniform(size.dimensions)
    with saturated(size, workload, seed=seed, progress=progress) as network:
        progress.say("measuring the model's parameters")
        width = bytes_per_second or crossing(parameters_under_load(network, 2.5 * size.interval), 0.5)
        network.link(width)
        early = parameters_under_load(network, 2.5 * size.interval)
        seen = network.sweep(rounds, seconds, progress)
        late = network.survey()
    return Capacity(
        bytes_per_second=width,
        parameters=early["parameters"],
        rows=[_row(at, early, late, seen[at]) for at in GRID],
    )


def _point(survey: dict[str, Any], precision: float) -> dict[str, Any]:
    """Returns one precision of the model's curve."""
    [point] = [point for point in survey["curve"] if point["precision"] == precision]
    return dict(point)


def _row(precision: float, early: dict[str, Any], late: dict[str, Any], seen: list[Passed]) -> Row:
    """Combines the measurements with the mean of the surveys before and after the rounds."""
    one, other = _point(early, precision), _point(late, precision)
    got = median(passed.core for passed in seen if passed.core is not None)

    def middle(name: str, early_factor: float = 1.0, late_factor: float = 1.0) -> float | None:
        if one[name] is None or other[name] is None:
            return None
        return (early_factor * float(one[name]) + late_factor * float(other[name])) / 2

    # Both predictions are scaled from the share of a core in their survey to that in the rounds.
    scales = [got / survey["parameters"]["core"] for survey in (early, late)]
    parts = {"TP_D": middle("dispatcher", *scales), "TP_OL": middle("outgoing"), "TP_S": middle("servers")}
    bounds = {name: value for name, value in parts.items() if value is not None}
    bottleneck = min(bounds, key=lambda name: bounds[name])
    return Row(
        precision=precision,
        measured=median(passed.throughput for passed in seen),
        rounds=[passed.throughput for passed in seen],
        predicted=bounds[bottleneck],
        dispatcher=parts["TP_D"],
        outgoing=parts["TP_OL"],
        servers=parts["TP_S"],
        bottleneck=bottleneck,
        hit_ratio=median(passed.hit_ratio for passed in seen),
        core=got,
    )


def draw(result: Capacity, path: Path) -> None:
    """Draws measured and predicted throughput by precision: the published Figure 12."""
    at = [row.precision for row in result.rows]
    highest = max(max(row.measured, row.predicted) for row in result.rows)
    figure, axis = new_axes(1, 1, 8, 5)
    axis.plot(at, [row.measured for row in result.rows], "o-", label="measured")
    for name, field in (("TP_D", "dispatcher"), ("TP_OL", "outgoing")):
        parts = [getattr(row, field) for row in result.rows]
        axis.plot(at, [float("nan") if part is None else part for part in parts], "--", label=name)
    axis.set(ylim=(0, 1.6 * highest), xlabel="precision", ylabel="events/s", title=_title(result))
    axis.legend()
    save(figure, path)
