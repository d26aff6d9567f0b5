"""The HTML page of a run: load, throughput and bottlenecks as tables and figures."""

from __future__ import annotations

import base64
import html
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from edn.tools.bench.report import Cells, fill, new_axes, save
from load.plan import Phase
from load.timeline import Moment

BOTTLENECKS = {
    "TP_IL": "the publishers: the network could carry more",
    "TP_D": "the dispatcher's CPU",
    "TP_OL": "the dispatcher's outgoing link",
    "TP_S": "the servers",
}

_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } th, td { padding: .25em .8em; text-align: right }
th { border-bottom: 1px solid #888 } td:first-child, th:first-child { text-align: left }
img { max-width: 100% } .big { font-size: 1.3em }
"""


def by_phase(plan: Sequence[Phase], moments: Sequence[Moment]) -> list[dict[str, Any]]:
    """Summarises each phase without its first quarter, in which the network adapts."""
    rows, begin = [], 0.0
    for phase in plan:
        end = begin + phase.seconds
        inside = [one for one in moments if begin + phase.seconds / 4 <= one.second < end]
        # The network smooths its readings: T_f belongs to this phase only at its end.
        late = [one.fixed for one in inside if one.second >= end - phase.seconds / 4]
        begin = end
        if not inside:
            continue
        rows.append(
            {
                "phase": phase.name,
                "seconds": phase.seconds,
                "users": phase.users_at_end,
                "events_per_second": fmean(one.throughput for one in inside),
                "hit_ratio": fmean(one.hit_ratio for one in inside),
                "precision": [min(one.precision for one in inside), max(one.precision for one in inside)],
                "dispatcher_cpu": fmean(one.cpu for one in inside),
                "server_cpu": fmean(one.server_cpu for one in inside),
                "fixed_us": 1e6 * fmean(late) if late else 0.0,
                "bottleneck": Counter(one.bottleneck for one in inside).most_common(1)[0][0],
            }
        )
    return rows


PHASES: Cells = (
    ("phase", "{r[phase]}"),
    ("users", "{r[users]}"),
    ("events/s", "{r[events_per_second]:,.0f}"),
    ("hit ratio", "{r[hit_ratio]:.2f}"),
    ("precision", lambda row: "–".join(dict.fromkeys(f"{at:g}" for at in row["precision"]))),
    ("dispatcher CPU", "{r[dispatcher_cpu]:.0%}"),
    ("T_f, µs", "{r[fixed_us]:,.1f}"),
    ("bounded by", "{r[bottleneck]}"),
)
REQUESTS: Cells = (
    ("request", "{r[request]}"),
    ("count", "{r[count]:,}"),
    ("failures", "{r[failures]:,}"),
    ("per second", "{r[per_second]:,.0f}"),
    ("median ms", "{r[median_ms]:g}"),
    ("95 % ms", "{r[p95_ms]:g}"),
    ("99 % ms", "{r[p99_ms]:g}"),
)


def write(summary: dict[str, Any], plan: Sequence[Phase], moments: Sequence[Moment], path: Path) -> None:
    best = max((row["events_per_second"] for row in summary["phases"]), default=0.0)
    parts = [
        f"<!doctype html><meta charset=utf-8><title>Load test</title><style>{_STYLE}</style>",
        "<h1>Load test</h1>",
        f"<p class=big>Up to <b>{best:,.0f} events per second</b> passed the whole network; "
        f"{summary['notifications']:,} notifications arrived, half of them within "
        f"{summary['delivery_ms']['p50']:,.0f} ms of their event and 99 % within "
        f"{summary['delivery_ms']['p99']:,.0f} ms. {summary['failures']:,} requests failed.</p>",
        f"<p>{summary['servers']} servers, {summary['subscriptions']:,} subscriptions initially. "
        f"{html.escape(summary['machine'])}. Locust, the network and the receiver share that machine.</p>",
        "<h2>Phases</h2>",
        _table(
            (
                *PHASES[:-1],
                (PHASES[-1][0], lambda row: f"{row['bottleneck']}, {BOTTLENECKS[row['bottleneck']]}"),
            ),
            summary["phases"],
        ),
        "<p>The first quarter of a phase, in which the network adapts, does not count. Hit ratio: copies "
        "sent to servers ÷ (events × servers). Precision: rectangles in use ÷ rectangles of a precise "
        "summary; the network chooses it. T_f: the dispatcher's CPU time per event except for routing and "
        "sending, as the network measures it, at the end of the phase.</p>",
        "<h2>Over time</h2>",
        f'<img alt="throughput, hit ratio, precision and CPU over time" src="{_picture(plan, moments)}">',
        "<h2>Requests</h2>",
        _table(REQUESTS, summary["requests"]),
        '<p>Locust\'s own report is <a href="load.html">load.html</a>; all figures are in '
        '<a href="summary.json">summary.json</a>.</p>',
    ]
    path.write_text("\n".join(parts), encoding="utf-8")


def _table(columns: Cells, rows: list[dict[str, Any]]) -> str:
    cells = "".join(f"<th>{html.escape(name)}</th>" for name, _ in columns)
    lines = ["".join(f"<td>{html.escape(fill(cell, row))}</td>" for _, cell in columns) for row in rows]
    return f"<table><tr>{cells}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _picture(plan: Sequence[Phase], moments: Sequence[Moment]) -> str:
    at = [one.second for one in moments]
    figure, axes = new_axes(3, 1, 10, 8, sharex=True)
    axes[0].plot(at, [one.throughput for one in moments])
    axes[0].set(ylabel="events/s", ylim=(0, None))
    axes[1].plot(at, [one.precision for one in moments], label="precision", drawstyle="steps-post")
    axes[1].plot(at, [one.hit_ratio for one in moments], label="hit ratio")
    axes[2].plot(at, [one.cpu for one in moments], label="dispatcher's CPU")
    axes[2].plot(at, [one.server_cpu for one in moments], label="fullest server's CPU")
    axes[2].set_xlabel("seconds")
    for axis in axes[1:]:
        axis.set_ylim(-0.02, 1.05)
        axis.legend(loc="lower left")
    begin = 0.0
    for phase in plan:
        for axis in axes:
            axis.axvline(begin, color="grey", linestyle=":", linewidth=1)
        axes[0].text(begin, axes[0].get_ylim()[1], f" {phase.name}", va="top", fontsize=9)
        begin += phase.seconds
    image = io.BytesIO()
    save(figure, image, dpi=100)
    return "data:image/png;base64," + base64.b64encode(image.getvalue()).decode()
