"""The dispatcher's metrics, read from existing counters at each scrape."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping

from fastapi import APIRouter, Request, Response

from dispatcher.auth.caller import Need, needs
from dispatcher.observe.servers import ServerDescriptions
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.admission import Admission
from dispatcher.servers.pipeline import Pipeline, PipelineCounters
from dispatcher.store.event_log import Log
from dispatcher.subscriptions.topics import Topics
from dispatcher.tuning.loop import Tuner
from edn import __version__
from edn.runtime import clock, metrics
from edn.runtime.disk import NoDisk
from edn.runtime.metrics import Metric, Values

_SERVER = ("server",)

METRICS = (
    Metric(
        "edn_dispatcher_info",
        "gauge",
        "1; log id and version are labels.",
        ("log", "version"),
    ),
    Metric("edn_dispatcher_accepting", "gauge", "1 while events are accepted."),
    Metric("edn_dispatcher_topics", "gauge", "Topics."),
    Metric("edn_dispatcher_events_published_total", "counter", "Events accepted since the start."),
    Metric("edn_dispatcher_publishers_held_total", "counter", "Publish requests delayed by backpressure."),
    Metric("edn_dispatcher_clock_suspect", "gauge", "1 while the wall clock deviates from the elapsed time."),
    Metric("edn_dispatcher_clock_adopted_total", "counter", "Adopted corrections of the wall clock."),
    Metric("edn_dispatcher_log_head_offset", "gauge", "Last committed offset of the log."),
    Metric("edn_dispatcher_log_floor_offset", "gauge", "Last truncated offset of the log."),
    Metric("edn_dispatcher_log_pending_bytes", "gauge", "Bytes waiting for their commit."),
    Metric("edn_dispatcher_log_disk_free_bytes", "gauge", "Free bytes on the log's disk."),
    Metric("edn_dispatcher_log_reusable_bytes", "gauge", "Bytes of free pages inside the log's file."),
    Metric("edn_dispatcher_log_wal_bytes", "gauge", "Bytes of the log's write-ahead file."),
    Metric("edn_dispatcher_routing_questions_total", "counter", "(event, server) pairs tested."),
    Metric("edn_dispatcher_routing_hits_total", "counter", "(event, server) pairs routed."),
    Metric("edn_dispatcher_routing_seconds_total", "counter", "CPU time of routing."),
    Metric("edn_dispatcher_sent_events_total", "counter", "Events in frames, once per server."),
    Metric("edn_dispatcher_sent_bytes_total", "counter", "Bytes of frames."),
    Metric("edn_dispatcher_sending_seconds_total", "counter", "CPU time of building frames."),
    Metric("edn_dispatcher_precision_ratio", "gauge", "Precision of the summaries in force, 0 to 1."),
    Metric("edn_dispatcher_tuning_decisions_total", "counter", "Changes of the precision since the start."),
    Metric("edn_dispatcher_tuning_cpu_ratio", "gauge", "CPU share in the last tuning reading, 0 to 1."),
    Metric("edn_dispatcher_hit_ratio", "gauge", "(event, server) pairs routed ÷ tested, last interval."),
    Metric("edn_dispatcher_best_hit_ratio", "gauge", "Best hit ratio since the last repartition."),
    Metric("edn_dispatcher_repartition_proposed", "gauge", "1 while a repartition is proposed."),
    Metric("edn_dispatcher_repartition_left_subscriptions", "gauge", "Subscriptions left to migrate."),
    Metric("edn_dispatcher_unsettled_subscriptions", "gauge", "Migrations not handed over yet."),
    Metric("edn_dispatcher_server_ready", "gauge", "1 if the server can host subscriptions.", _SERVER),
    Metric("edn_dispatcher_server_subscriptions", "gauge", "Subscriptions hosted.", _SERVER),
    Metric("edn_dispatcher_server_lag_records", "gauge", "Lag in log records.", _SERVER),
    Metric("edn_dispatcher_server_forwarded_events_total", "counter", "Events forwarded.", _SERVER),
    Metric("edn_dispatcher_server_useful_events_total", "counter", "Forwarded events that matched.", _SERVER),
    Metric("edn_dispatcher_server_matches_total", "counter", "Matches.", _SERVER),
    Metric("edn_dispatcher_server_backlog_notifications", "gauge", "Backlog in notifications.", _SERVER),
    Metric("edn_dispatcher_server_cpu_ratio", "gauge", "CPU use as a share of one core.", _SERVER),
    Metric("edn_dispatcher_summary_rectangles", "gauge", "Rectangles in the routing table.", _SERVER),
    Metric("edn_dispatcher_summary_maximal_rectangles", "gauge", "Maximal rectangles.", _SERVER),
    Metric("edn_dispatcher_summary_bytes", "gauge", "Memory of the summary.", _SERVER),
)


def _read_servers(descriptions: ServerDescriptions, table: RoutingTable) -> Mapping[str, Values]:
    columns: dict[str, dict[tuple[str, ...], float]] = {}
    for server in descriptions.all():
        topics = table.describe(server["id"]).topics.values()
        values: dict[str, float | None] = {
            "server_ready": float(server["state"] == "ready"),
            "server_subscriptions": server["subscriptions"],
            "server_lag_records": server["lag"],
            "server_forwarded_events_total": server["forwarded"],
            "server_useful_events_total": server["useful"],
            "server_matches_total": server["matched"],
            "server_backlog_notifications": server["backlog"],
            "server_cpu_ratio": server["cpu"],
            "summary_rectangles": sum(topic.rectangles + topic.widenings for topic in topics),
            "summary_maximal_rectangles": sum(topic.maximal for topic in topics),
            "summary_bytes": sum(topic.bytes for topic in topics),
        }
        for name, value in values.items():
            column = columns.setdefault(name, {})
            if value is not None:
                column[(server["id"],)] = value
    return columns


def routes(
    log: Log,
    topics: Topics,
    table: RoutingTable,
    pipeline: Pipeline,
    counters: PipelineCounters,
    descriptions: ServerDescriptions,
    tuner: Tuner,
    admission: Admission,
    read_partition: Callable[[], Awaitable[Mapping[str, float]]],
) -> APIRouter:
    """`read_partition` reads the metrics of repartitions."""
    router = APIRouter(tags=["operations"])
    partition: Mapping[str, float] = {}

    def read() -> dict[str, Values]:
        counts, tuning = counters.counts, tuner.tuning
        space = log.measure_space()
        values: dict[str, Values] = {
            "info": {(log.id, __version__): 1},
            "accepting": float(admission.accepting()),
            "topics": len(topics.all()),
            "events_published_total": pipeline.published,
            "publishers_held_total": pipeline.backpressure.held,
            "clock_suspect": float(clock.suspect() is not None),
            "clock_adopted_total": clock.keeper.adoptions,
            "log_head_offset": log.head,
            "log_floor_offset": log.floor,
            "log_pending_bytes": log.pending,
            "log_disk_free_bytes": math.nan if isinstance(log.disk, NoDisk) else space.free,
            "log_reusable_bytes": space.reusable,
            "log_wal_bytes": space.wal,
            "routing_questions_total": counts.tested,
            "routing_hits_total": counts.hits,
            "routing_seconds_total": counts.routing,
            "sent_events_total": counts.copies,
            "sent_bytes_total": counts.sent_bytes,
            "sending_seconds_total": counts.sending,
            "precision_ratio": tuning.precision,
            "tuning_decisions_total": tuning.decided,
            **_read_servers(descriptions, table),
            **partition,
        }
        if tuner.reading is not None:
            values["tuning_cpu_ratio"] = tuner.reading.cpu
        return {f"edn_dispatcher_{name}": value for name, value in values.items()}

    registry = metrics.registry(metrics.Table(METRICS, read))

    @router.get("/metrics", response_class=Response, responses=metrics.CONTENT)
    @needs(Need.METRICS)
    async def scrape(request: Request) -> Response:
        """Get metrics for Prometheus."""
        nonlocal partition
        partition = await read_partition()
        return metrics.answer(registry, request.headers.get("accept", ""))

    return router
