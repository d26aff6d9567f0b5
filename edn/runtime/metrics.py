"""Metrics for Prometheus: families declared once as data, values read on request.

A service has a table of `Metric`s and a function that reads their values; nothing is counted for Prometheus
that is not counted anyway, so nobody pays for metrics but whoever scrapes. Names follow Prometheus'
conventions: base units, `_total` on what only grows. No label grows with the number of subscriptions.
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

# When a series began is one more series for each; nobody asks for it.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library types it not at all

#: the value of a metric without labels, or of each combination of its labels' values
Values = float | Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


class Table(Collector):
    """A service's metrics; `read` gives the values by name, and may leave out what it cannot say now."""

    def __init__(self, metrics: Sequence[Metric], read: Callable[[], Mapping[str, Values]]) -> None:
        self._metrics = metrics
        self._read = read

    def describe(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Without values: so that registering reads nothing."""
        return [_family(metric) for metric in self._metrics]

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        values = self._read()
        unknown = values.keys() - {metric.name for metric in self._metrics}
        if unknown:
            raise ValueError(f"no metric is called {', '.join(sorted(unknown))}")
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
    """These, and what every process has: CPU time, memory, open files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    for collector in collectors:
        registry.register(collector)
    return registry


def answer(registry: CollectorRegistry, accept: str) -> Response:
    """A scrape, in the format that was asked for."""
    encode, media = choose_encoder(accept)
    return Response(encode(registry), headers={"content-type": media})


#: of the route, for the OpenAPI document
CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the metrics, in Prometheus' text format or OpenMetrics",
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            "application/openmetrics-text": {"schema": {"type": "string"}},
        },
    }
}
