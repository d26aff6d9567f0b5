"""The published experiments, run anew: figures and tables of what each claim amounts to here.

Each module is one experiment, a function from its parameters to a result; `command` shows results. It
imports `edn`, `partitioning` and `selftune`; nothing imports it.
"""
