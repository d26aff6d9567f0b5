"""Metrics for Prometheus: families declared as data, values read per scrape.

A service has a table of `Metric`s and a function that reads their values from counters that exist anyway, so
metrics cost nothing between scrapes. Names follow Prometheus' conventions: base units, `_total` for counters.
No label grows with the number of subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.responses import Response

# The creation time would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]

#: value of a metric without labels, or values by label values
Values = float | Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


class Table(Collector):
    """The metrics of a service; `read` returns values by name and may omit unknown ones."""

    def __init__(self, metrics: Sequence[Metric], read: Callable[[], Mapping[str, Values]]) -> None:
        self._metrics = metrics
        self._read = read

    def describe(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Describes the families without values, so that registration reads nothing."""
        return [_family(metric) for metric in self._metrics]

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        values = self._read()
        unknown = values.keys() - {metric.name for metric in self._metrics}
        if unknown:
            raise ValueError(f"undeclared metrics: {', '.join(sorted(unknown))}")
        for metric in self._metrics:
            if metric.name not in values:
                continue
            family = _family(metric)
            value = values[metric.name]
            if isinstance(value, Mapping):
                for labels, one in value.items():
                    family.add_metric(list(labels), one)
            else:
                family.add_metric([], value)
            yield family


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.help, labels=metric.labels)


def registry(*collectors: Collector) -> CollectorRegistry:
    """Builds a registry of collectors and of the process's CPU time, memory and open files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    for collector in collectors:
        registry.register(collector)
    return registry


def answer(registry: CollectorRegistry, accept: str) -> Response:
    """Renders a scrape in the accepted format."""
    encode, media = choose_encoder(accept)
    return Response(encode(registry), headers={"content-type": media})


#: OpenAPI responses of the route
CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the metrics, in Prometheus' text format or OpenMetrics",
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            "application/openmetrics-text": {"schema": {"type": "string"}},
        },
    }
}
