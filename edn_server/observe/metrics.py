"""Metrics of a server, read from its counters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from edn import __version__
from edn.runtime import clock, disk
from edn.runtime.metrics import Metric, Values
from edn_server.config import Settings
from edn_server.delivery.notifier import Notifier
from edn_server.observe.server_status import ServerStatus
from edn_server.subscriptions.topic_index import Topic
from edn_server.subscriptions.view import RegistryView

_TOPIC = ("topic",)

METRICS = (
    Metric("edn_server_info", "gauge", "1, with the id and version of the server.", ("id", "version")),
    Metric(
        "edn_server_ready", "gauge", "1 if the server is registered and has applied every log's join record."
    ),
    Metric("edn_server_subscriptions", "gauge", "Hosted subscriptions."),
    Metric("edn_server_paused_subscriptions", "gauge", "Paused subscriptions."),
    Metric("edn_server_clock_suspect", "gauge", "1 while the wall clock differs from the elapsed time."),
    Metric("edn_server_clock_adopted_total", "counter", "Adopted corrections of the wall clock."),
    Metric("edn_server_log_cursor_offset", "gauge", "Cursor of a log.", ("log",)),
    Metric("edn_server_topic_rectangles", "gauge", "Rectangles of a topic's subscriptions.", _TOPIC),
    Metric(
        "edn_server_topic_maximal_rectangles", "gauge", "Maximal rectangles of a topic: its summary.", _TOPIC
    ),
    Metric(
        "edn_server_evaluated_events_total", "counter", "Events of a topic that reached this server.", _TOPIC
    ),
    Metric("edn_server_backlog_notifications", "gauge", "Notifications that wait for delivery."),
    Metric("edn_server_notifications_delivered_total", "counter", "Notifications that sinks accepted."),
    Metric("edn_server_posts_delivered_total", "counter", "POSTs that sinks accepted."),
    Metric("edn_server_posts_failed_total", "counter", "Failed attempts."),
    Metric("edn_server_dead_letters_total", "counter", "POSTs that became dead letters."),
    Metric(
        "edn_server_dropped_rows_total",
        "counter",
        "Rows dropped because their subscriptions ended while the address failed.",
    ),
    Metric("edn_server_failing_addresses", "gauge", "Failing or disabled addresses."),
    Metric(
        "edn_server_limit_drops_total",
        "counter",
        "Notifications and dead letters dropped at a tenant's byte limit.",
        ("limit",),
    ),
    Metric("edn_server_disk_free_bytes", "gauge", "Free bytes on the disk of the database."),
    Metric("edn_server_spare", "gauge", "1 if this process is a spare that replaced a dead server."),
    Metric("edn_server_lease_seconds", "gauge", "PostgreSQL: seconds left of the lease of the shard."),
    Metric("edn_server_commits_total", "counter", "PostgreSQL: committed transactions."),
    Metric("edn_server_commit_seconds_total", "counter", "PostgreSQL: duration of committed transactions."),
    Metric("edn_server_commits_in_doubt_total", "counter", "PostgreSQL: commits without an answer."),
    Metric("edn_server_database_outages_total", "counter", "PostgreSQL: lost connections of the writer."),
    Metric(
        "edn_server_disk_short", "gauge", "1 while events are refused because the disk has too little room."
    ),
)


def read(
    settings: Settings,
    view: RegistryView,
    notifier: Notifier,
    status: ServerStatus,
) -> dict[str, Values]:
    """Returns the values of all metrics."""
    topics, counters = view.topics(), notifier.counters
    evaluated = view.counters.topics()
    values: dict[str, Values] = {
        "info": {(settings.id, __version__): 1},
        "ready": float(status.not_ready() is None),
        "subscriptions": view.subscriptions(),
        "paused_subscriptions": view.paused_subscriptions(),
        "clock_suspect": float(clock.suspect() is not None),
        "clock_adopted_total": clock.keeper.adoptions,
        "log_cursor_offset": {(log,): cursor for log, cursor in view.cursors().items()},
        "topic_rectangles": _by_path(topics, lambda topic: topic.rectangles),
        "topic_maximal_rectangles": _by_path(topics, lambda topic: topic.maximal),
        "evaluated_events_total": _by_path(topics, lambda topic: evaluated.get(topic.uid, 0)),
        "backlog_notifications": counters.backlog,
        "disk_free_bytes": math.nan if settings.data is None else disk.free_bytes(settings.data),
        "disk_short": float(status.shortage() is not None),
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
    if (found := status.store.commit_figures) is not None:
        figures, left = found
        values |= {
            "spare": float(settings.spare),
            "lease_seconds": left,
            "commits_total": figures.commits,
            "commit_seconds_total": figures.seconds,
            "commits_in_doubt_total": figures.doubts,
            "database_outages_total": figures.outages,
        }
    return {f"edn_server_{name}": value for name, value in values.items()}


def _by_path(topics: Sequence[Topic], count: Callable[[Topic], int]) -> Values:
    """Sums a figure by path: it includes the tenant, and a recreated topic continues its series."""
    sums: dict[tuple[str, ...], float] = {}
    for topic in topics:
        sums[(topic.path,)] = sums.get((topic.path,), 0) + count(topic)
    return sums
