"""Figures in one style: what is ours in colour, what was published in black and dashed.

A `Canvas` is what an experiment draws on: some panels side by side, each with axes that are named. Curves are
means over the seeds with a band from the least to the greatest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from evaluation.outcome import Outcome, Series, mean

#: distinguishable also by those who see red and green alike (Okabe and Ito)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666", "#8B6914")
MARKERS = "osD^vPXd"
STYLE: Any = {
    "figure.dpi": 110,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e2e2e2",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}


class Panel:
    """One pair of axes."""

    def __init__(self, axes: Any, outcomes: Sequence[Outcome]) -> None:
        self.axes = axes
        self._outcomes = outcomes
        self._mean = mean(outcomes)
        self._drawn = 0
        self._inside = False

    def derived(self, label: str, derive: Callable[[Outcome], Series], *, colour: int | None = None) -> None:
        """A curve that is computed from each outcome."""
        outcomes = [Outcome({}, {label: derive(one)}) for one in self._outcomes]
        Panel(self.axes, outcomes).curve(label, colour=colour)

    def labels(self, title: str, x: str, y: str) -> Panel:
        self.axes.set_title(title)
        self.axes.set_xlabel(x)
        self.axes.set_ylabel(y)
        return self

    def curve(
        self, name: str, label: str | None = None, *, style: str = "-", colour: int | None = None
    ) -> None:
        """A series of the outcomes: its mean, and how far the seeds lie apart."""
        number = self._drawn if colour is None else colour
        self._drawn += 1
        shown = self._mean.series[name]
        paint = COLOURS[number % len(COLOURS)]
        marker = MARKERS[number % len(MARKERS)]
        every = max(1, len(shown.x) // 12)
        self.axes.plot(
            shown.x, shown.y, style, color=paint, marker=marker, markevery=every, label=label or name
        )
        if len(self._outcomes) > 1:
            columns = list(zip(*(one.series[name].y for one in self._outcomes), strict=True))
            self.axes.fill_between(
                shown.x, [min(c) for c in columns], [max(c) for c in columns], color=paint, alpha=0.15, lw=0
            )

    def bars(self, names: Sequence[str], keys: Sequence[str]) -> None:
        """One bar a name, with the mean of a number of the outcomes in it."""
        heights = [self._mean[key] for key in keys]
        colours = [COLOURS[number % len(COLOURS)] for number in range(len(names))]
        drawn = self.axes.bar(range(len(names)), heights, color=colours, width=0.7)
        self.axes.bar_label(drawn, fmt="%.3g", fontsize=7, label_type="center", color="white")
        self.axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)
        self.axes.grid(axis="x", visible=False)

    def groups(self, names: Sequence[str], keys: Mapping[str, str]) -> None:
        """A group of bars a name, one bar a label of `keys`: mean and deviation of the number whose key,
        a template of `name`, is there."""
        width = 0.8 / len(keys)
        for number, (label, key) in enumerate(keys.items()):
            places = [at + (number - (len(keys) - 1) / 2) * width for at in range(len(names))]
            seen = [[one[key.format(name=name)] for one in self._outcomes] for name in names]
            heights, spreads = [fmean(some) for some in seen], [pstdev(some) for some in seen]
            paint = COLOURS[number % len(COLOURS)]
            self.axes.bar(places, heights, width, yerr=spreads, color=paint, label=label)
        self.axes.set_xticks(range(len(names)), names, rotation=25, ha="right", fontsize=7)
        self.axes.grid(axis="x", visible=False)

    def published(self, label: str, *, x: float | None = None, y: float | None = None) -> None:
        """A published number: a line across, or a point where both are known."""
        style: dict[str, Any] = {"color": "black", "label": f"published: {label}"}
        if x is not None and y is not None:
            self.axes.plot([x], [y], "*", markersize=11, zorder=5, **style)
        elif y is not None:
            self.axes.axhline(y, ls="--", lw=1.1, **style)
        elif x is not None:
            self.axes.axvline(x, ls="--", lw=1.1, **style)

    def published_span(self, label: str, low: float, high: float, *, vertical: bool = False) -> None:
        span = self.axes.axvspan if vertical else self.axes.axhspan
        span(low, high, color="black", alpha=0.08, lw=0, label=f"published: {label}")

    def legend_inside(self) -> None:
        """Puts the legend inside, where long names stand below."""
        self._inside = True

    def add_legend(self) -> None:
        """Below the axes, where it hides nothing, unless it belongs inside."""
        if self._inside:
            self.axes.margins(y=0.3)
            self.axes.legend(loc="upper center", ncols=3, columnspacing=1.0, handlelength=1.4)
            return
        entries = self.axes.get_legend_handles_labels()[1]
        columns = 1 if max(map(len, entries), default=0) > 34 else 2
        self.axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns)


class Canvas:
    """The panels of one figure."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = outcomes
        self._figure: Any = None
        self._panels: list[Panel] = []

    def panels(
        self, columns: int = 1, rows: int = 1, *, height: float = 4.4, width: float | None = None
    ) -> list[Panel]:
        from matplotlib import pyplot

        width = width or (6.4 if columns == 1 else 4.6 * columns)
        self._figure, grid = pyplot.subplots(
            rows, columns, figsize=(width, height * rows), squeeze=False, layout="constrained"
        )
        self._panels = [Panel(axes, self.outcomes) for line in grid for axes in line]
        return self._panels

    def save(self, path: Path) -> None:
        from matplotlib import pyplot

        for panel in self._panels:
            panel.add_legend()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a date in it the same figure is the same file.
        self._figure.savefig(path, metadata={"Software": None})
        pyplot.close(self._figure)


def draw(draw_on: Any, outcomes: Sequence[Outcome], path: Path) -> None:
    """Let an experiment draw its outcomes into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(outcomes)
        draw_on(canvas, outcomes)
        canvas.save(path)
