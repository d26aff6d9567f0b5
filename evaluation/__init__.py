"""The published experiments, run on this code: figures, and a table with the verdict on each claim.

`experiments/` has one module per experiment; `experiment` defines experiments, outcomes, claims and
verdicts. `simulated_placement`, `cut_cost`, `relative_throughput` and `tuner_simulation` run the product's
own code for several experiments: nothing here partitions, cuts, routes or tunes by itself. `command` runs
experiments, `results` stores their outcomes, `document` writes `docs/evaluation.md` and
`docs/evaluation-siena.md` with the figures of `figures`. `live_placement` is `edn bench placement`.
`siena/` has the simulator and the experiments of a second system; `suites` names both evaluations and their
pages.

Imports `edn`, `partitioning` and `selftune`. Only `edn evaluate` and `edn bench placement` load it.
"""
