"""A server's metrics: read from what it counts anyway, and two histograms that count once a POST."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edn import __version__
from edn.runtime import clock, disk
from edn.runtime.metrics import Metric, Values
from edn_server.config import Settings
from edn_server.delivery.notifier import Notifier
from edn_server.subscriptions.topic_index import Topic
from edn_server.subscriptions.view import RegistryView

_TOPIC = ("topic",)

METRICS = (
    Metric("edn_server_info", "gauge", "1; which server and which version.", ("id", "version")),
    Metric("edn_server_ready", "gauge", "1 if it is registered and has read every log's join record."),
    Metric("edn_server_subscriptions", "gauge", "Subscriptions that it hosts."),
    Metric("edn_server_paused_subscriptions", "gauge", "Those of them that are paused."),
    Metric("edn_server_clock_suspect", "gauge", "1 while the wall clock departs from the elapsed time."),
    Metric("edn_server_clock_adopted_total", "counter", "Corrections of the wall clock adopted."),
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
    Metric(
        "edn_server_limit_drops_total",
        "counter",
        "Notifications, and dead letters, dropped because a tenant was at a limit of bytes.",
        ("limit",),
    ),
    Metric("edn_server_disk_free_bytes", "gauge", "Bytes free on the database's disk."),
    Metric(
        "edn_server_disk_short", "gauge", "1 while it takes no events because its disk has too little room."
    ),
)


def read(
    settings: Settings,
    view: RegistryView,
    notifier: Notifier,
    *,
    is_ready: bool,
    is_short: bool,
) -> dict[str, Values]:
    """Return the values of all metrics."""
    topics, counters = view.topics(), notifier.counters
    evaluated = view.counters.topics()
    values: dict[str, Values] = {
        "info": {(settings.id, __version__): 1},
        "ready": float(is_ready),
        "subscriptions": view.subscriptions(),
        "paused_subscriptions": view.paused_subscriptions(),
        "clock_suspect": float(clock.suspect() is not None),
        "clock_adopted_total": clock.keeper.adoptions,
        "log_cursor_offset": {(log,): cursor for log, cursor in view.cursors().items()},
        "topic_rectangles": _by_path(topics, lambda topic: topic.rectangles),
        "topic_maximal_rectangles": _by_path(topics, lambda topic: topic.maximal),
        "evaluated_events_total": _by_path(topics, lambda topic: evaluated.get(topic.uid, 0)),
        "backlog_notifications": counters.backlog,
        "disk_free_bytes": disk.free_bytes(settings.data),
        "disk_short": float(is_short),
        "notifications_delivered_total": counters.notified,
        "posts_delivered_total": counters.delivered,
        "posts_failed_total": counters.failed,
        "dead_letters_total": counters.dead,
        "limit_drops_total": {
            ("paused_bytes",): counters.paused_dropped,
            ("stream_bytes",): counters.unread_dropped,
            ("dead_letter_bytes",): counters.letters_dropped,
        },
        "dropped_rows_total": counters.dropped,
        "failing_addresses": notifier.failing,
    }
    return {f"edn_server_{name}": value for name, value in values.items()}


def _by_path(topics: Sequence[Topic], count: Callable[[Topic], int]) -> Values:
    """Add up a figure by path: tenants' topics of one name stay apart, a topic made anew goes on."""
    sums: dict[tuple[str, ...], float] = {}
    for topic in topics:
        sums[(topic.path,)] = sums.get((topic.path,), 0) + count(topic)
    return sums
