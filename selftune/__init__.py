"""Where the precision of summaries is decided: readings in, decisions out.

`tuning` holds the mode, the precision in force and the bounded history of decisions. `paper` is the
published rule, `predicting` the policy that predicts, `throughput` the model that it predicts with, `curve`
what a model is measured from, `cpu` the one place that looks at the processor, `command` the calculator
`edn capacity`. Imports `edn` only; knows nothing of HTTP routes, servers or the log.
"""
