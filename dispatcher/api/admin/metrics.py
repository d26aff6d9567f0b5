"""The dispatcher's metrics, read from existing counters at each scrape."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping

from fastapi import APIRouter, Request, Response

from dispatcher.advertisements.guard import PublicationGuard
from dispatcher.advertisements.reach import Reach
from dispatcher.auth.caller import Need, needs
from dispatcher.observe.servers import ServerDescriptions
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.admission import Admission
from dispatcher.servers.pipeline import Pipeline, PipelineCounters
from dispatcher.store.event_log import Log
from dispatcher.subscriptions.topics import Topics
from dispatcher.tuning.loop import Tuner
from edn import __version__
from edn.errors import Unavailable
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
    Metric("edn_dispatcher_sources", "gauge", "Sources that this dispatcher runs, by state.", ("state",)),
    Metric(
        "edn_dispatcher_source_messages_total",
        "counter",
        "Messages of sources since the start: published, rejected (dead letters) or dropped.",
        ("outcome",),
    ),
    Metric("edn_dispatcher_events_published_total", "counter", "Events accepted since the start."),
    Metric(
        "edn_dispatcher_unadvertised_requests_total", "counter", "Publish requests refused as unadvertised."
    ),
    Metric("edn_dispatcher_unadvertised_events_total", "counter", "Events dropped as unadvertised."),
    Metric("edn_dispatcher_dead_subscriptions", "gauge", "Subscriptions that no advertisement can match."),
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
    Metric("edn_dispatcher_lease_seconds", "gauge", "PostgreSQL: seconds left of the lease of the log."),
    Metric("edn_dispatcher_commits_total", "counter", "PostgreSQL: committed transactions."),
    Metric("edn_dispatcher_commit_seconds_total", "counter", "PostgreSQL: duration of committed ones."),
    Metric("edn_dispatcher_commits_in_doubt_total", "counter", "PostgreSQL: commits without an answer."),
    Metric("edn_dispatcher_database_outages_total", "counter", "PostgreSQL: lost connections of the writer."),
    Metric(
        "edn_dispatcher_lease_owned",
        "gauge",
        "PostgreSQL: 1 if a living process owns a log or server.",
        ("kind", "id"),
    ),
    Metric(
        "edn_dispatcher_lease_takeovers_total",
        "counter",
        "PostgreSQL: takeovers of a log or server from a dead process.",
        ("kind", "id"),
    ),
    Metric("edn_dispatcher_spares", "gauge", "PostgreSQL: processes that wait to replace a dead server."),
    Metric("edn_dispatcher_replicas", "gauge", "PostgreSQL: standbys of the database."),
    Metric(
        "edn_dispatcher_replica_lag_bytes",
        "gauge",
        "PostgreSQL: bytes that a standby has not flushed; needs the role pg_monitor.",
        ("replica",),
    ),
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


async def _read_ownership(log: Log) -> Mapping[str, Values]:
    """Returns the metrics of a network on PostgreSQL; none while the database does not answer."""
    left, figures = log.lease_seconds, log.writer.figures
    if left is None:
        return {}
    values: dict[str, Values] = {
        "lease_seconds": left,
        "commits_total": figures.commits,
        "commit_seconds_total": figures.seconds,
        "commits_in_doubt_total": figures.doubts,
        "database_outages_total": figures.outages,
    }
    try:
        found = await log.ownership()
    except Unavailable:
        return values
    leases = {(lease.kind, lease.id): lease for lease in found.leases}
    return values | {
        "lease_owned": {key: float(lease.state == "owned") for key, lease in leases.items()},
        "lease_takeovers_total": {key: lease.takeovers for key, lease in leases.items()},
        "spares": found.spares,
        "replicas": len(found.replicas),
        "replica_lag_bytes": {
            (replica.name,): replica.lag_bytes for replica in found.replicas if replica.lag_bytes is not None
        },
    }


def routes(
    log: Log,
    topics: Topics,
    table: RoutingTable,
    pipeline: Pipeline,
    counters: PipelineCounters,
    descriptions: ServerDescriptions,
    tuner: Tuner,
    admission: Admission,
    advertised: PublicationGuard,
    reach: Reach,
    read_partition: Callable[[], Awaitable[Mapping[str, float]]],
    read_sources: Callable[[], Mapping[str, Values]],
) -> APIRouter:
    """`read_partition` and `read_sources` read the metrics of repartitions and of sources."""
    router = APIRouter(tags=["operations"])
    partition: Mapping[str, float] = {}
    owned: Mapping[str, Values] = {}

    def read() -> dict[str, Values]:
        counts, tuning = counters.counts, tuner.tuning
        space = log.measure_space()
        values: dict[str, Values] = {
            "info": {(log.id, __version__): 1},
            "accepting": float(admission.accepting()),
            "topics": len(topics.all()),
            "events_published_total": pipeline.published,
            "unadvertised_requests_total": advertised.refused,
            "unadvertised_events_total": advertised.dropped,
            "dead_subscriptions": sum(reach.dead.values()),
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
            **read_sources(),
            **_read_servers(descriptions, table),
            **partition,
            **owned,
        }
        if tuner.reading is not None:
            values["tuning_cpu_ratio"] = tuner.reading.cpu
        return {f"edn_dispatcher_{name}": value for name, value in values.items()}

    registry = metrics.registry(metrics.Table(METRICS, read))

    @router.get("/metrics", response_class=Response, responses=metrics.CONTENT)
    @needs(Need.METRICS)
    async def scrape(request: Request) -> Response:
        """Get metrics for Prometheus."""
        nonlocal partition, owned
        partition, owned = await read_partition(), await _read_ownership(log)
        return metrics.answer(registry, request.headers.get("accept", ""))

    return router
