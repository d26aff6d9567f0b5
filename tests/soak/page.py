"""Writes the results of a run: a table for the terminal, JSON, and a page with a line per figure."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from tests.soak.growth import Growth
from tests.soak.sampling import FIGURES, Samples

_WIDTH, _HEIGHT = 640, 120
_STYLE = """
body { font: 14px sans-serif; max-width: 60em; margin: 2em auto }
polyline { fill: none; stroke: #26c; stroke-width: 1.5 }
"""


def amount(figure: str, value: float) -> str:
    return f"{value / (1 << 20):.1f} MiB" if figure in ("rss", "files") else f"{value:.0f}"


def table(found: Sequence[Growth]) -> str:
    head = f"{'process':<12}{'figure':<13}{'medians of the quarters':<46}{'gained':>11}{'allowed':>11}"
    lines = [head]
    for one in found:
        quarters = "  ".join(f"{amount(one.figure, value):>9}" for value in one.quarters)
        gained, allowed = amount(one.figure, one.gained), amount(one.figure, one.allowed)
        verdict = "  GROWS" if one.grows else ""
        lines.append(f"{one.process:<12}{one.figure:<13}{quarters:<46}{gained:>11}{allowed:>11}{verdict}")
    return "\n".join(lines)


def page(title: str, found: Sequence[Growth], samples: Mapping[str, Samples]) -> str:
    parts = [f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>"]
    parts.append(f"<h1>{html.escape(title)}</h1><pre>{html.escape(table(found))}</pre>")
    for name, one in samples.items():
        for figure in FIGURES:
            parts.append(f"<h3>{html.escape(name)}: {figure}</h3>{_line(one, figure)}")
    return "\n".join(parts)


def _line(samples: Samples, figure: str) -> str:
    values, times = samples.figures[figure], samples.times
    if len(values) < 2:
        return "<p>too few samples</p>"
    most, end = max(values) or 1.0, times[-1] or 1.0
    points = " ".join(
        f"{time / end * _WIDTH:.1f},{_HEIGHT - value / most * (_HEIGHT - 4):.1f}"
        for time, value in zip(times, values, strict=True)
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}"><polyline points="{points}"/></svg>'
        f"<div>0 to {amount(figure, most)}; {end / 60:.1f} minutes</div>"
    )
