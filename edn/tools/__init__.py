"""Programs around the network: benchmarks, the checker of recorded runs, the demo.

May import every other package of `edn`; only the command lines import it.
"""
