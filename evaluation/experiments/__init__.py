"""One module an experiment: its sizes, its run, its claims, its figure, and in words why ours differs.

`ALL` has them in the order in which the document shows them; `GROUPS` names those that belong together.
"""

from __future__ import annotations

from evaluation.experiment import AnyExperiment
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

ALL: tuple[AnyExperiment, ...] = (
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

GROUPS: dict[str, tuple[AnyExperiment, ...]] = {
    "selftuning": (*figure_12.EXPERIMENTS, *figure_16.EXPERIMENTS, tuning.EXPERIMENT),
}
