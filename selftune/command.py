"""`edn capacity`: predicts the throughput of a network, as it is and with other parameters.

Parameters and curve come from a running dispatcher, which measures all precisions on request, or from a saved
answer. The throughput model does the rest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from edn.errors import EdnError, InvalidInput
from selftune.throughput import Model, OperatingPoint, Parameters, with_subscriptions

app = typer.Typer(
    name="capacity",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: parameters that can be changed; options and --vary use the same names
VARIED: dict[str, Callable[[Model, float], Model]] = {
    "servers": lambda model, value: _with(model, servers=int(value)),
    "bandwidth": lambda model, value: _with(model, bandwidth=value),
    "message-bytes": lambda model, value: _with(model, message_bytes=value),
    "fixed-us": lambda model, value: _with(model, fixed=1e-6 * value),
    "per-copy-us": lambda model, value: _with(model, per_copy=1e-6 * value),
    "serving-us": lambda model, value: _with(model, serving=1e-6 * value),
    "cpu": lambda model, value: _with(model, core=model.parameters.core * value),
    "subscriptions": lambda model, value: Model(
        model.parameters,
        {at: one if at == 0 else with_subscriptions(one, value) for at, one in model.curve.items()},
    ),
}


def _with(model: Model, **changed: Any) -> Model:
    return Model(replace(model.parameters, **changed), model.curve)


class NothingMeasured(InvalidInput):
    """The network has not measured its parameters yet."""


def parse(answer: dict[str, Any]) -> Model:
    """Read the model from an answer of `GET /v1/tuning`; null is unlimited."""
    if not isinstance(answer, dict):
        raise InvalidInput(f"answer of GET /v1/tuning must be an object, got {type(answer).__name__}")
    if not answer.get("parameters") or not answer.get("curve"):
        raise NothingMeasured(
            "nothing has been measured yet: the network measures while events are published; publish some "
            "for a few seconds and try again"
        )
    try:
        known = {name: float(value) for name, value in answer["parameters"].items() if value is not None}
        curve = {
            float(point["precision"]): OperatingPoint(
                routing=float(point["routing"]), hit_ratio=float(point["hit_ratio"])
            )
            for point in answer["curve"]
        }
        return Model(Parameters(servers=int(known.pop("servers")), **known), curve)
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidInput(f"answer of GET /v1/tuning is invalid: {error}") from None


def what_if(model: Model, changes: dict[str, float]) -> Model:
    """Return the model with changed parameters; `subscriptions` and `cpu` are factors."""
    for name, value in changes.items():
        model = VARIED[name](model, value)
    return model


def describe(model: Model) -> dict[str, Any]:
    """Return the model as JSON; null is unlimited."""
    best = model.best()
    return {
        "best": {"precision": best, **_bounds(model, best)},
        "curve": [{"precision": at, **_bounds(model, at)} for at in sorted(model.curve)],
    }


def _limited(rate: float) -> float | None:
    return rate if rate < float("inf") else None


def _bounds(model: Model, precision: float) -> dict[str, Any]:
    parts = model.at(precision)
    rates = {name: rate for name, rate in parts.by_name.items() if name != "TP_IL"}
    return {
        "hit_ratio": model.curve[precision].hit_ratio,
        "routing_us": 1e6 * model.curve[precision].routing,
        **{name: _limited(rate) for name, rate in rates.items()},
        "throughput": _limited(parts.throughput),
        "bottleneck": parts.bottleneck,
    }


def _fetch(url: str) -> dict[str, Any]:
    from edn.client import Client, network
    from edn.tools.console import failing_readably

    # The dispatcher answers after it has measured all precisions.
    with failing_readably(), Client(url, timeout=300.0) as client:
        return client.run(network.survey())


@app.callback(invoke_without_command=True)
def capacity(
    url: Annotated[
        str, typer.Option(envvar="EDN_URL", help="URL of the dispatcher.")
    ] = "http://127.0.0.1:8080",
    saved: Annotated[
        Path | None, typer.Option("--from", help="Read a saved answer of GET /v1/tuning.", exists=True)
    ] = None,
    servers: Annotated[float | None, typer.Option(min=1, help="Number of servers (N_s).")] = None,
    bandwidth: Annotated[
        float | None, typer.Option(min=1, help="Link bandwidth in bytes per second (B).")
    ] = None,
    message_bytes: Annotated[float | None, typer.Option(min=1, help="Bytes per event copy (S_m).")] = None,
    fixed_us: Annotated[
        float | None, typer.Option(min=0, help="Dispatcher CPU per event in µs (T_f).")
    ] = None,
    per_copy_us: Annotated[
        float | None, typer.Option(min=0, help="Dispatcher CPU per copy in µs (T_c).")
    ] = None,
    serving_us: Annotated[
        float | None, typer.Option(min=0, help="Server CPU per event in µs (T_s F).")
    ] = None,
    cpu: Annotated[float | None, typer.Option(min=0.01, help="Speed of the dispatcher, as a factor.")] = None,
    subscriptions: Annotated[
        float | None, typer.Option(min=0.01, help="Number of subscriptions, as a factor (estimate).")
    ] = None,
    vary: Annotated[
        str | None, typer.Option(help=f"Compare values of one parameter: {', '.join(VARIED)}.")
    ] = None,
    values: Annotated[str, typer.Option(help="Values for --vary, separated by commas.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict throughput and bottleneck at each precision, with the measured or other parameters."""
    from edn.tools.console import REFUSED, USAGE, fail, show_json

    given = {
        "servers": servers,
        "bandwidth": bandwidth,
        "message-bytes": message_bytes,
        "fixed-us": fixed_us,
        "per-copy-us": per_copy_us,
        "serving-us": serving_us,
        "cpu": cpu,
        "subscriptions": subscriptions,
    }
    try:
        now = parse(json.loads(saved.read_text()) if saved is not None else _fetch(url))
        model = what_if(now, {name: value for name, value in given.items() if value is not None})
        if vary is not None and vary not in VARIED:
            raise InvalidInput(f'--vary must be one of {", ".join(VARIED)}, got "{vary}"')
        if (vary is None) != (not values.strip()):
            raise InvalidInput(
                "--vary requires --values, such as --vary servers --values 2,4,8, and vice versa"
            )
        numbers = [_number(value) for value in values.split(",") if value.strip()]
    except NothingMeasured as error:
        fail(str(error), REFUSED)
    except (EdnError, ValueError) as error:
        fail(str(error), USAGE)
    varied = {value: what_if(model, {vary: value}) for value in numbers} if vary is not None else {}
    if as_json:
        show_json(
            {
                "now": describe(now),
                "what_if": describe(model),
                "varied": {f"{value:g}": describe(one)["best"] for value, one in varied.items()},
            }
        )
        return
    _print(now, model, vary, varied)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f'--values must be numbers separated by commas, got "{text.strip()}"') from None


#: columns of the table
_LEGEND = """\
R       share of the servers that an event is routed to; 1 is all of them
T_d     time to decide whether one server gets an event
TP_D    events per second that the dispatcher can route and forward
TP_OL   events per second that the links to the servers can carry
TP_S    events per second that the servers can match and deliver
TP      the smallest of them: what the network can handle\
"""


def _print(now: Model, model: Model, vary: str | None, varied: dict[float, Model]) -> None:
    from rich.console import Console
    from rich.table import Table

    def rate(value: float | None) -> str:
        return "unlimited" if value is None else f"{value:,.0f}"

    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("precision", title="Events per second that each part can handle")
    for column in ("R", "T_d µs", "TP_D", "TP_OL", "TP_S", "TP", "limited by"):
        table.add_column(column, justify="right")
    for point in describe(model)["curve"]:
        table.add_row(
            f"{point['precision']:g}",
            f"{point['hit_ratio']:.3f}",
            f"{point['routing_us']:.2f}",
            rate(point["TP_D"]),
            rate(point["TP_OL"]),
            rate(point["TP_S"]),
            rate(point["throughput"]),
            point["bottleneck"],
        )
    console.print(table)
    console.print(_LEGEND, highlight=False)
    was, best = describe(now)["best"], describe(model)["best"]
    console.print(
        f"Best: precision {best['precision']:g}, {rate(best['throughput'])} events/s, "
        f"limited by {best['bottleneck']}."
        + ("" if model == now else f" Now: {was['precision']:g}, {rate(was['throughput'])} events/s.")
    )
    if varied:
        compared = Table(vary or "", title="Best precision")
        for column in ("precision", "events/s", "limited by"):
            compared.add_column(column, justify="right")
        for value, one in varied.items():
            found = describe(one)["best"]
            compared.add_row(
                f"{value:g}", f"{found['precision']:g}", rate(found["throughput"]), found["bottleneck"]
            )
        console.print(compared)
