"""Offline partitioning on Spark.

    session    Spark session with the required settings
    snapshot   reads and validates subscriptions
    packing    packs rows of a snapshot into numbered chunks
    rows       the chunks, distributed over the cluster

The methods themselves are in `partitioning`. Only this package and `partitioning.planner` import Spark.
"""
