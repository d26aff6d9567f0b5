"""One module per experiment: its sizes, run, claims and figure, and why our results differ.

The docstring of a module is the text of its section in `docs/evaluation.md`. `ALL` has the order of that
page; `GROUPS` names experiments that belong together.
"""

from __future__ import annotations

from evaluation.experiment import Experiment
from evaluation.experiments import (
    bloom,
    cuts,
    dimensions,
    figure_3,
    figure_4,
    figure_5,
    figure_7,
    figure_8,
    figure_9,
    figure_10,
    figure_12,
    figure_12_live,
    figure_16,
    load_factor,
    locality,
    offline_share,
    scale,
    table_1,
    traffic,
    tuning,
)

ALL: tuple[Experiment, ...] = (
    figure_3.EXPERIMENT,
    figure_4.EXPERIMENT,
    *figure_5.EXPERIMENTS,
    load_factor.EXPERIMENT,
    offline_share.EXPERIMENT,
    dimensions.EXPERIMENT,
    table_1.EXPERIMENT,
    figure_7.EXPERIMENT,
    figure_8.EXPERIMENT,
    figure_9.EXPERIMENT,
    figure_10.EXPERIMENT,
    locality.EXPERIMENT,
    *figure_12.EXPERIMENTS,
    figure_12_live.EXPERIMENT,
    *figure_16.EXPERIMENTS,
    cuts.EXPERIMENT,
    traffic.EXPERIMENT,
    tuning.EXPERIMENT,
    bloom.EXPERIMENT,
    scale.EXPERIMENT,
)

GROUPS: dict[str, tuple[Experiment, ...]] = {
    "selftuning": (*figure_12.EXPERIMENTS, *figure_16.EXPERIMENTS, tuning.EXPERIMENT),
}
