"""Runs a network for a long time under steady load and churn, and checks that nothing grows.

Three tenants of a locked network publish at a steady rate and create, change and delete topics, keys,
addresses, subscriptions and streams all the time (`churn`, `sinks`). Memory, descriptors, threads and
database files of each process are sampled (`sampling`); `growth` fits the second half of the run.

`python -m tests.soak --minutes 30`, or `make soak`. Shorter runs than ten minutes are judged leniently:
caches that are bounded by time or bytes still fill.
"""
