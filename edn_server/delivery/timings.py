"""How long deliveries take, as Prometheus histograms: one addition a POST, none an event."""

from __future__ import annotations

from prometheus_client import Histogram

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)


class Timings:
    """Of one node; registered where they are asked for (`edn_server.observe.metrics`)."""

    def __init__(self) -> None:
        self.posts = Histogram(
            "edn_server_post_seconds",
            "How long a sink took to answer an attempt.",
            buckets=_BUCKETS,
            registry=None,
        )
        self.deliveries = Histogram(
            "edn_server_delivery_seconds",
            "From an event's match to its sink's answer, of POSTs that were taken.",
            buckets=_BUCKETS,
            registry=None,
        )
