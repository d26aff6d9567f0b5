"""The published evaluations: their experiments and the pages that judge them."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation import document
from evaluation.experiment import Experiment
from evaluation.experiments import ALL, GROUPS
from evaluation.siena import document as siena_document
from evaluation.siena.experiments import ALL as SIENA


@dataclass(frozen=True, slots=True)
class Suite:
    #: on the command line
    name: str
    experiments: tuple[Experiment, ...]
    #: the page's file name and beginning
    page: str
    head: str


EDN = Suite("edn", ALL, "evaluation.md", document.HEAD)
SIENA_SUITE = Suite("siena", SIENA, "evaluation-siena.md", siena_document.HEAD)
SUITES = (EDN, SIENA_SUITE)
EVERY: tuple[Experiment, ...] = tuple(one for suite in SUITES for one in suite.experiments)
#: names of experiments that belong together
NAMED: dict[str, tuple[Experiment, ...]] = GROUPS | {suite.name: suite.experiments for suite in SUITES}
