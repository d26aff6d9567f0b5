"""One module per experiment of the second evaluation; `ALL` has the order of `docs/evaluation-siena.md`."""

from __future__ import annotations

from evaluation.experiment import Experiment
from evaluation.siena.experiments import (
    delegation,
    instability,
    lattice,
    merging,
    per_request,
    per_service,
    per_site,
    relations,
    summaries,
    thousand_sites,
    total_cost,
    unsubscription,
)

ALL: tuple[Experiment, ...] = (
    total_cost.EXPERIMENT,
    per_service.EXPERIMENT,
    per_request.EXPERIMENT,
    per_site.EXPERIMENT,
    relations.EXPERIMENT,
    lattice.EXPERIMENT,
    merging.EXPERIMENT,
    instability.EXPERIMENT,
    summaries.EXPERIMENT,
    unsubscription.EXPERIMENT,
    delegation.EXPERIMENT,
    thousand_sites.EXPERIMENT,
)
