"""Prints the results of `edn bench database`."""

from __future__ import annotations

from edn.tools.bench.database.outcome import Outcome
from edn.tools.bench.report import print_rows, print_table, to_json
from edn.tools.console import show_json

_APPEND = (
    ("engine", "{r.engine}"),
    ("bytes per commit", "{r.size:,}"),
    ("MB/s", "{r.mb_per_second:.1f}"),
    ("p50 / p99 ms", "{r.p50:.2f} / {r.p99:.2f}"),
)
_APPLY = (
    ("engine", "{r.engine}"),
    ("subscriptions", "{r.subscriptions:,}"),
    ("matches per event", "{r.matches_per_event:.1f}"),
    ("events/s", "{r.events_per_second:,.0f}"),
    ("CPU µs/event: server, database", "{r.server_cpu_us:.1f}, {r.database_cpu_us:.1f}"),
)
_PUBLISH = (
    ("engine", "{r.engine}"),
    ("servers × subscriptions", "{r.servers} × {r.subscriptions:,}"),
    ("events/s", "{r.events_per_second:,.0f}"),
    (
        "CPU µs/event: dispatcher, servers, primary, standby",
        "{r.dispatcher_cpu_us:.1f}, {r.servers_cpu_us:.1f}, {r.primary_cpu_us:.1f}, {r.standby_cpu_us:.1f}",
    ),
    ("single event p50 / p99 ms", "{r.single_p50:.2f} / {r.single_p99:.2f}"),
)
_DELIVERY = (
    ("system", "{r.system}"),
    ("load", "{r.load}"),
    ("p50 / p99 ms", "{r.p50:.1f} / {r.p99:.1f}"),
    ("notifications/s", "{r.entries_per_second:,.0f}"),
    ("events/s", "{r.events_per_second:,.1f}"),
    ("CPU µs/POST by process", lambda r: ", ".join(f"{role} {us:.0f}" for role, us in r.roles.items())),
)
_DISPATCHERS = (
    ("dispatchers", "{r.dispatchers}"),
    ("events/s", "{r.events_per_second:,.0f}"),
    ("events per commit of a log", "{r.batch:.1f}"),
    ("commits per 100 events", "{r.transactions:.2f}"),
    ("WAL bytes/event", "{r.wal_bytes:,.0f}"),
    (
        "CPU µs/event: dispatchers, servers, primary, standby",
        "{r.cpu_us.dispatchers:.1f}, {r.cpu_us.servers:.1f}, {r.cpu_us.primary:.1f}, {r.cpu_us.standby:.1f}",
    ),
    ("sum", "{r.total_us:.1f}"),
    (
        "idle, cores",
        "{r.idle.dispatchers:.3f}, {r.idle.servers:.3f}, {r.idle.primary:.3f}, {r.idle.standby:.3f}",
    ),
    ("sum without idle", "{r.net_us:.1f}"),
)


def show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        show_json(
            {
                **to_json(outcome),
                "bounds": [to_json(bound) for bound in outcome.bounds],
                "dispatchers": [to_json(one) for one in outcome.dispatchers],
            }
        )
        return
    for title, columns, results in (
        ("The log alone", _APPEND, outcome.append),
        ("One server alone", _APPLY, outcome.apply),
        ("Publish to committed outboxes", _PUBLISH, outcome.publish),
        ("Publish to arrival", _DELIVERY, outcome.delivery),
        ("Several dispatchers", _DISPATCHERS, outcome.dispatchers),
    ):
        if results:
            print_rows(title, columns, results)
    print_table(
        "Bounds",
        ("", "measured", "bound", ""),
        [
            (
                one.name,
                f"{one.measured:.2f}",
                f"{'≥' if one.is_least else '≤'} {one.bound:.2f}",
                "kept" if one.is_kept else "missed",
            )
            for one in outcome.bounds
        ],
    )
