"""Benchmarks, each a module and a command of its own, and the seeded workloads they share.

A benchmark has `run`, which measures and returns results, and `show`, which prints them with `report`
(`histogram` for distributions); `draw` if it can be plotted; `right` if it checks its results. `command`
declares the commands of `edn bench`. Besides tests, only `evaluation` and `load` import this package, for
workloads, networks and single benchmarks.
"""
