"""Figures in one style: our results in colour, published ones in black and dashed.

Curves are means over the seeds, with a band from the smallest to the largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from evaluation.experiment import Outcome, Series, mean

#: distinguishable for colour-blind readers (Okabe and Ito)
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
        """Draws a curve that is computed from each outcome."""
        outcomes = [Outcome({}, {label: derive(one)}) for one in self._outcomes]
        Panel(self.axes, outcomes).curve(label, colour=colour)

    def labels(self, title: str, x: str, y: str) -> None:
        self.axes.set(title=title, xlabel=x, ylabel=y)

    def log_log(self) -> None:
        self.axes.set(xscale="log", yscale="log")

    def curve(
        self, name: str, label: str | None = None, *, style: str = "-", colour: int | None = None
    ) -> None:
        """Draws a series of the outcomes: its mean and the range of the seeds."""
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
            columns = list(zip(*(one.y(name) for one in self._outcomes), strict=True))
            low, high = [min(c) for c in columns], [max(c) for c in columns]
            self.axes.fill_between(shown.x, low, high, color=paint, alpha=0.15, lw=0)

    def curves(self, names: Sequence[str] | Mapping[str, str], prefix: str = "") -> None:
        """Draws several series; a mapping gives their labels."""
        labels = names if isinstance(names, Mapping) else {name: name for name in names}
        for name, label in labels.items():
            self.curve(f"{prefix}{name}", label)

    def bars(self, names: Sequence[str], keys: Sequence[str]) -> None:
        """Draws one bar per name: the mean of a number of the outcomes."""
        heights = [self._mean[key] for key in keys]
        colours = [COLOURS[number % len(COLOURS)] for number in range(len(names))]
        drawn = self.axes.bar(range(len(names)), heights, color=colours, width=0.7)
        self.axes.bar_label(drawn, fmt="%.3g", fontsize=7, label_type="center", color="white")
        self._name_bars(names, 30)

    def groups(self, names: Sequence[str], keys: Mapping[str, str]) -> None:
        """Draws a group of bars per name: one bar per label of `keys`, mean and deviation of the number
        whose key is a template of `name`."""
        width = 0.8 / len(keys)
        for number, (label, key) in enumerate(keys.items()):
            places = [at + (number - (len(keys) - 1) / 2) * width for at in range(len(names))]
            seen = [[one[key.format(name=name)] for one in self._outcomes] for name in names]
            heights, spreads = [fmean(some) for some in seen], [pstdev(some) for some in seen]
            paint = COLOURS[number % len(COLOURS)]
            self.axes.bar(places, heights, width, yerr=spreads, color=paint, label=label)
        self._name_bars(names, 25)

    def _name_bars(self, names: Sequence[str], rotation: int) -> None:
        self.axes.set_xticks(range(len(names)), names, rotation=rotation, ha="right", fontsize=7)
        self.axes.grid(axis="x", visible=False)
        self._inside = True

    def line(self, label: str, x: Sequence[float], y: Sequence[float], style: str = "--") -> None:
        """Draws a reference line between points."""
        self.axes.plot(x, y, style, color="black", lw=1.1, label=label)

    def level(self, label: str, y: float, style: str = "--") -> None:
        """Draws a horizontal reference line."""
        self.axes.axhline(y, ls=style, lw=1.1, color="black", label=label)

    def stars(self, label: str | None, x: Sequence[float], y: Sequence[float]) -> None:
        """Draws published points."""
        self.axes.plot(x, y, "k*", markersize=11, zorder=5, label=label)

    def span(self, label: str, low: float, high: float) -> None:
        """Draws a published range."""
        self.axes.axhspan(low, high, color="black", alpha=0.08, lw=0, label=f"published: {label}")

    def add_legend(self) -> None:
        """Adds the legend, if any, below the axes, or inside them where the names of bars are below."""
        if not self.axes.get_legend_handles_labels()[1]:
            return
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

    @property
    def first(self) -> Outcome:
        """The outcome of the first seed: names and axes are the same for all seeds."""
        return self.outcomes[0]

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
        # Without a date, equal figures are equal files.
        self._figure.savefig(path, metadata={"Software": None})
        pyplot.close(self._figure)


def draw(draw_on: Callable[[Canvas], None], outcomes: Sequence[Outcome], path: Path) -> None:
    """Draws the outcomes of an experiment into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(outcomes)
        draw_on(canvas)
        canvas.save(path)
