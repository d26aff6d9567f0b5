"""The sustainable rate of a running network at each precision, beside what the throughput model predicts.

The link is capped so that the model's TP_D and TP_OL cross in the middle, unless a width is given: the
published Figure 12, from our own system. Precisions are measured in several rounds, each of which takes all
of them in turn, so that whatever slows the machine for a while slows all; medians count. The model's
parameters are those that the dispatcher measured of itself meanwhile; its prediction for a round is scaled
by the part of a core that the dispatcher got in it, which is the machine's business and not the model's.
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
    #: events a second, the median and all rounds
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


def crossing(curve: list[dict[str, Any]], parameters: dict[str, Any], precision: float) -> float:
    """Bytes a second at which link and dispatcher carry the same at a precision."""
    [at] = [point for point in curve if point["precision"] == precision]
    return float(at["dispatcher"] * at["hit_ratio"] * parameters["message_bytes"] * parameters["servers"])


def parameters_under_load(network: Saturated, seconds: float) -> dict[str, Any]:
    """The dispatcher's own survey, after it has seen some intervals of saturation at a middling precision."""
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
    """`seconds`: of each measurement, `rounds` of all precisions; the network's size is a `Size`."""
    size = Size(servers=servers, subscriptions=subscriptions, router=router, interval=interval)
    workload = uniform(size.dimensions)
    with saturated(size, workload, seed=seed, progress=progress) as network:
        progress.say("measuring the model's parameters")
        told = parameters_under_load(network, 2.5 * size.interval)
        width = bytes_per_second or crossing(told["curve"], told["parameters"], 0.5)
        network.link(width)
        told = parameters_under_load(network, 2.5 * size.interval)
        seen = network.sweep(rounds, seconds, progress)
        later = network.survey()
    return Capacity(
        bytes_per_second=width,
        parameters=told["parameters"],
        rows=[_row(_mean(told, later, at), told["parameters"]["core"], seen[at]) for at in GRID],
    )


def _mean(early: dict[str, Any], late: dict[str, Any], precision: float) -> dict[str, Any]:
    """The model at one precision from the surveys before and after the rounds; their means."""
    [one], [other] = (
        [point for point in told["curve"] if point["precision"] == precision] for told in (early, late)
    )
    scale = early["parameters"]["core"] / late["parameters"]["core"]

    def middle(name: str, factor: float = 1.0) -> float | None:
        if one[name] is None or other[name] is None:
            return None
        return (float(one[name]) + factor * float(other[name])) / 2

    return {
        **one,
        "dispatcher": middle("dispatcher", scale),
        "outgoing": middle("outgoing"),
        "servers": middle("servers"),
    }


def _row(point: dict[str, Any], core: float, seen: list[Passed]) -> Row:
    """`core` is what the prediction of TP_D was made with."""
    got = median(one.core for one in seen if one.core is not None)
    parts = {
        "TP_D": None if point["dispatcher"] is None else point["dispatcher"] * got / core,
        "TP_OL": point["outgoing"],
        "TP_S": point["servers"],
    }
    bounds = {name: value for name, value in parts.items() if value is not None}
    bottleneck = min(bounds, key=lambda name: bounds[name])
    return Row(
        precision=point["precision"],
        measured=median(one.throughput for one in seen),
        rounds=[one.throughput for one in seen],
        predicted=bounds[bottleneck],
        dispatcher=parts["TP_D"],
        outgoing=parts["TP_OL"],
        servers=parts["TP_S"],
        bottleneck=bottleneck,
        hit_ratio=median(one.hit_ratio for one in seen),
        core=got,
    )


def draw(result: Capacity, path: Path) -> None:
    """Measured and predicted throughput by precision: the published Figure 12."""
    at = [row.precision for row in result.rows]
    highest = max(max(row.measured, row.predicted) for row in result.rows)
    figure, axis = new_axes(1, 1, 8, 5)
    axis.plot(at, [row.measured for row in result.rows], "o-", label="measured")
    for name, parts in (
        ("TP_D", [row.dispatcher for row in result.rows]),
        ("TP_OL", [row.outgoing for row in result.rows]),
    ):
        axis.plot(at, [float("nan") if part is None else part for part in parts], "--", label=name)
    axis.set_ylim(0, 1.6 * highest)
    axis.set_xlabel("precision")
    axis.set_ylabel("events/s")
    axis.legend()
    axis.set_title(_title(result))
    save(figure, path)
