"""Decides the precision of the summaries: readings in, decisions out.

    tuning            mode, precision in force, history of decisions
    paper             the published rule
    predictive        the predicting policy
    throughput        the throughput model
    curve             measurements for the model, and `observed_curve`, their correction
    cpu               CPU load
    command           `edn capacity`

Imports `edn` only; knows nothing of HTTP routes, servers or the log.
"""
