"""Benchmarks of single parts, each a module and a command of its own, and the seeded workloads they share.

A benchmark has `run`, which measures and returns what it found, and `show`, which prints that by the means of
`report` (`histogram` for what was taken often); `draw` if it can be plotted, `right` if it can be wrong.
`command` declares the commands of `edn bench`. Nothing outside this package imports it but tests and, for
workloads, networks and single benchmarks, `evaluation` and `load`.
"""
