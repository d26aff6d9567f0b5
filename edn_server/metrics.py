"""A server's metrics: read from what it counts anyway, and two histograms that count once a POST."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from edn import __version__, metrics
from edn.metrics import Metric, Values
from edn_server.node import Node

_TOPIC = ("topic",)

METRICS = (
    Metric("edn_server_info", "gauge", "1; which server and which version.", ("id", "version")),
    Metric("edn_server_ready", "gauge", "1 if it is registered and has read every log's join record."),
    Metric("edn_server_subscriptions", "gauge", "Subscriptions that it hosts."),
    Metric("edn_server_paused_subscriptions", "gauge", "Those of them that are paused."),
    Metric("edn_server_log_cursor_offset", "gauge", "Up to which offset a log is applied.", ("log",)),
    Metric("edn_server_topic_rectangles", "gauge", "Rectangles of a topic's subscriptions.", _TOPIC),
    Metric(
        "edn_server_topic_maximal_rectangles", "gauge", "Those that no other covers: the summary.", _TOPIC
    ),
    Metric("edn_server_evaluated_events_total", "counter", "Events of a topic that came here.", _TOPIC),
    Metric("edn_server_backlog_notifications", "gauge", "Notifications that wait to be delivered."),
    Metric("edn_server_notifications_delivered_total", "counter", "Notifications that sinks took."),
    Metric("edn_server_posts_delivered_total", "counter", "POSTs that sinks took."),
    Metric("edn_server_posts_failed_total", "counter", "Attempts that were not taken."),
    Metric("edn_server_dead_letters_total", "counter", "POSTs that were given up."),
    Metric("edn_server_dropped_rows_total", "counter", "Rows of subscriptions that ended while failing."),
    Metric("edn_server_failing_addresses", "gauge", "Addresses that fail or are disabled."),
)


def read(node: Node) -> dict[str, Values]:
    # The writer's thread may be changing these; what is read is old or new, never half of each.
    topics = list(node.hosting.topics.values())
    evaluated = node.hosting.tally.topics()
    values: dict[str, Values] = {
        "info": {(node.settings.id, __version__): 1},
        "ready": float(node.not_ready() is None),
        "subscriptions": len(node.hosting.numbers),
        "paused_subscriptions": len(node.hosting.paused),
        "log_cursor_offset": {(log,): cursor for log, cursor in node.cursors().items()},
        "topic_rectangles": {(topic.name,): topic.maximal.total for topic in topics},
        "topic_maximal_rectangles": {(topic.name,): len(topic.maximal) for topic in topics},
        "evaluated_events_total": {(topic.name,): evaluated.get(topic.uid, 0) for topic in topics},
        "backlog_notifications": node.backlog,
    }
    if node.notifier is not None:
        counters = node.notifier.counters
        values |= {
            "notifications_delivered_total": counters.notified,
            "posts_delivered_total": counters.delivered,
            "posts_failed_total": counters.failed,
            "dead_letters_total": counters.dead,
            "dropped_rows_total": counters.dropped,
            "failing_addresses": node.notifier.failing,
        }
    return {f"edn_server_{name}": value for name, value in values.items()}


def routes(node: Node) -> APIRouter:
    router = APIRouter(tags=["health"])
    table, timings = metrics.Table(METRICS, lambda: read(node)), node.timings
    registry = metrics.registry(table, timings.posts, timings.deliveries)

    @router.get("/metrics", response_class=Response, responses=metrics.CONTENT)
    async def scrape(request: Request) -> Response:
        """For Prometheus."""
        return metrics.answer(registry, request.headers.get("accept", ""))

    return router
