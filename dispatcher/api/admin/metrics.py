"""The dispatcher's metrics: read from counters that are there anyway, once a scrape."""

from __future__ import annotations

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
from edn.runtime.metrics import Metric, Values

_SERVER = ("server",)

METRICS = (
    Metric("edn_dispatcher_info", "gauge", "1; which log and which version.", ("log", "version")),
    Metric("edn_dispatcher_accepting", "gauge", "1 while events are taken."),
    Metric("edn_dispatcher_topics", "gauge", "Topics."),
    Metric("edn_dispatcher_events_published_total", "counter", "Events accepted since the start."),
    Metric("edn_dispatcher_publishers_held_total", "counter", "Publishers that had to wait for a server."),
    Metric("edn_dispatcher_clock_suspect", "gauge", "1 while the wall clock departs from the elapsed time."),
    Metric("edn_dispatcher_clock_adopted_total", "counter", "Corrections of the wall clock adopted."),
    Metric("edn_dispatcher_log_head_offset", "gauge", "Last committed offset of the log."),
    Metric("edn_dispatcher_log_floor_offset", "gauge", "The log begins after this offset."),
    Metric("edn_dispatcher_log_pending_bytes", "gauge", "Bytes that wait for their commit."),
    Metric("edn_dispatcher_log_disk_free_bytes", "gauge", "Bytes free on the log's disk."),
    Metric("edn_dispatcher_log_reusable_bytes", "gauge", "Bytes of free pages inside the log's file."),
    Metric("edn_dispatcher_log_wal_bytes", "gauge", "Bytes of the log's write-ahead file."),
    Metric("edn_dispatcher_routing_questions_total", "counter", "(event, server) pairs asked about."),
    Metric("edn_dispatcher_routing_hits_total", "counter", "Those of them that were to be sent."),
    Metric("edn_dispatcher_routing_seconds_total", "counter", "CPU time of routing."),
    Metric("edn_dispatcher_sent_events_total", "counter", "Events put into frames, once a server."),
    Metric("edn_dispatcher_sent_bytes_total", "counter", "Bytes of these frames."),
    Metric("edn_dispatcher_sending_seconds_total", "counter", "CPU time of putting frames together."),
    Metric("edn_dispatcher_precision_ratio", "gauge", "Precision of the summaries in force, 0 to 1."),
    Metric("edn_dispatcher_tuning_decisions_total", "counter", "Changes of the precision since the start."),
    Metric("edn_dispatcher_tuning_cpu_ratio", "gauge", "CPU share that tuning last read, 0 to 1."),
    Metric(
        "edn_dispatcher_hit_ratio",
        "gauge",
        "Share of (event, server) pairs that were forwarded in the last interval.",
    ),
    Metric("edn_dispatcher_best_hit_ratio", "gauge", "The best of that since the last repartition."),
    Metric("edn_dispatcher_repartition_proposed", "gauge", "1 if a repartition would be worth its while."),
    Metric(
        "edn_dispatcher_repartition_left_subscriptions",
        "gauge",
        "Subscriptions that the running repartition has yet to move.",
    ),
    Metric(
        "edn_dispatcher_unsettled_subscriptions",
        "gauge",
        "Moved, but the former server has not delivered everything yet.",
    ),
    Metric("edn_dispatcher_server_ready", "gauge", "1 if the server can host subscriptions.", _SERVER),
    Metric("edn_dispatcher_server_subscriptions", "gauge", "Subscriptions that it hosts.", _SERVER),
    Metric("edn_dispatcher_server_lag_records", "gauge", "Records of the log that it is behind.", _SERVER),
    Metric("edn_dispatcher_server_forwarded_events_total", "counter", "Events that it took.", _SERVER),
    Metric(
        "edn_dispatcher_server_useful_events_total",
        "counter",
        "Those of them that matched; the others were false positives.",
        _SERVER,
    ),
    Metric("edn_dispatcher_server_matches_total", "counter", "(event, subscription) pairs found.", _SERVER),
    Metric("edn_dispatcher_server_backlog_notifications", "gauge", "Notifications that wait there.", _SERVER),
    Metric("edn_dispatcher_server_cpu_ratio", "gauge", "Share of one core that it used lately.", _SERVER),
    Metric("edn_dispatcher_summary_rectangles", "gauge", "Rectangles in use for it, of all topics.", _SERVER),
    Metric(
        "edn_dispatcher_summary_maximal_rectangles", "gauge", "Rectangles of its precise summary.", _SERVER
    ),
    Metric("edn_dispatcher_summary_bytes", "gauge", "Memory of its summary here.", _SERVER),
)


def read(
    log: Log,
    topics: Topics,
    table: RoutingTable,
    pipeline: Pipeline,
    counters: PipelineCounters,
    descriptions: ServerDescriptions,
    tuner: Tuner,
    admission: Admission,
    partition: Mapping[str, float],
) -> dict[str, Values]:
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
        "log_disk_free_bytes": space.free,
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
        **_of_servers(descriptions, table),
        **partition,
    }
    if tuner.reading is not None:
        values["tuning_cpu_ratio"] = tuner.reading.cpu
    return {f"edn_dispatcher_{name}": value for name, value in values.items()}


def _of_servers(descriptions: ServerDescriptions, table: RoutingTable) -> Mapping[str, Values]:
    columns: dict[str, dict[tuple[str, ...], float]] = {}

    def put(name: str, server: str, value: float | None) -> None:
        own = columns.setdefault(name, {})
        if value is not None:
            own[(server,)] = value

    for server in descriptions.all():
        name = server["id"]
        put("server_ready", name, float(server["state"] == "ready"))
        put("server_subscriptions", name, server["subscriptions"])
        put("server_lag_records", name, server["lag"])
        put("server_forwarded_events_total", name, server["forwarded"])
        put("server_useful_events_total", name, server["useful"])
        put("server_matches_total", name, server["matched"])
        put("server_backlog_notifications", name, server["backlog"])
        put("server_cpu_ratio", name, server["cpu"])
        routed = table.describe(name).topics.values()
        put("summary_rectangles", name, sum(topic.rectangles + topic.widenings for topic in routed))
        put("summary_maximal_rectangles", name, sum(topic.maximal for topic in routed))
        put("summary_bytes", name, sum(topic.bytes for topic in routed))
    return columns


def routes(
    values: Callable[[Mapping[str, float]], dict[str, Values]],
    partition: Callable[[], Awaitable[Mapping[str, float]]],
) -> APIRouter:
    """`values`: `read` with its parts; `partition`: the quality of the partition, and moves that run."""
    router = APIRouter(tags=["operations"])
    #: of the latest scrape
    read_partition: dict[str, float] = {}
    registry = metrics.registry(metrics.Table(METRICS, lambda: values(read_partition)))

    @router.get("/metrics", response_class=Response, responses=metrics.CONTENT)
    @needs(Need.METRICS)
    async def scrape(request: Request) -> Response:
        """For Prometheus."""
        found = await partition()
        read_partition.clear()
        read_partition.update(found)
        return metrics.answer(registry, request.headers.get("accept", ""))

    return router
