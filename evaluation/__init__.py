"""The published experiments, run anew on this code: figures, and a table of what became of each claim.

`experiments/` has one module an experiment; `experiment` is what each of them looks like, `outcome` what each
gives, `claims` the rule by which it is judged. `placing`, `searching`, `relative`, `settling` and `world` do
with the product's own code what several experiments need: nothing here partitions, cuts, routes or tunes by
itself. `command` runs them, `results` stores their outcomes, `document` writes `docs/evaluation.md` from
those, with the figures of `drawing`.

It imports `edn`, `partitioning` and `selftune`. Only the commands `edn evaluate` and `edn bench placement`
load it.
"""
