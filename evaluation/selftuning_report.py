"""Tables and the plot of `edn evaluate selftuning`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from evaluation.selftuning import PHASE, Result


def print_result(result: Result, console: Console) -> None:
    figure = Table("precision", title="Figure 12: T_d = tests × a constant; beside it our own router's T_d")
    for column in ("R", "tests", "T_d µs", "TP_D", "TP_OL", "TP", "own T_d µs", "own TP"):
        figure.add_column(column, justify="right")
    for row, own in zip(result.figure_12, result.figure_12_own_router, strict=True):
        figure.add_row(
            f"{row.precision:g}",
            f"{row.hit_ratio:.3f}",
            f"{row.tests:.0f}",
            f"{row.routing_us:.0f}",
            f"{row.tp_d:.0f}",
            f"{row.tp_ol:.0f}",
            f"{row.throughput:.0f}",
            f"{own.routing_us:.2f}",
            f"{own.throughput:.0f}",
        )
    console.print(figure)
    settling = Table("policy", "n", "from", "events", title="Figures 16 and 17: where it settles, and stays")
    for column in ("best fixed", "stays at", "changes", "throughput ÷ best fixed"):
        settling.add_column(column, justify="right")
    for one in result.settling:
        settling.add_row(
            one.policy,
            f"{one.damping:g}",
            f"{one.start:g}",
            one.phase,
            f"{one.best_precision:g}",
            ", ".join(f"{at:g}" for at in one.visited),
            str(one.changes),
            f"{one.share:.3f}",
        )
    console.print(settling)
    regimes = Table(
        "regime", "bounds", title="Throughput ÷ best fixed precision; the worst run, and the mean"
    )
    for column in ("best fixed", "events/s", "paper", "mean", "model", "mean"):
        regimes.add_column(column, justify="right")
    for regime in result.regimes:
        regimes.add_row(
            regime.name,
            regime.bottlenecks,
            f"{regime.best_precision:g}",
            f"{regime.best_throughput:,.0f}",
            *(
                f"{share:.3f}"
                for policy in ("paper", "model")
                for share in (regime.least[policy], regime.mean[policy])
            ),
        )
    console.print(regimes)


def draw(result: Result, path: Path) -> None:
    """Precision and throughput of every run, as in the published figures."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    runs = [one for one in result.settling if one.phase == result.settling[0].phase]
    figure, axes = pyplot.subplots(len(runs), 1, figsize=(9, 2.2 * len(runs)), sharex=True, squeeze=False)
    for one, axis in zip(runs, axes[:, 0], strict=True):
        axis.step(range(len(one.trace.precisions)), one.trace.precisions, where="post", color="tab:blue")
        axis.set_ylim(-0.05, 1.05)
        axis.set_ylabel("precision")
        axis.axvline(PHASE, color="grey", linestyle=":")
        beside = axis.twinx()
        beside.plot(one.trace.throughputs, color="tab:orange", linewidth=1)
        beside.set_ylim(0, None)
        beside.set_ylabel("events/s")
        axis.set_title(f"{one.policy}, n = {one.damping:g}, from {one.start:g}", fontsize=9)
    axes[-1, 0].set_xlabel("interval; events change at the dotted line")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
