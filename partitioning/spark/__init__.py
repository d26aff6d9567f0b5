"""Offline partitioning on Spark: everything that needs a session, and nothing that decides.

    session    a session with the settings that this code relies on
    snapshot   subscriptions as they are stored, validated by name and type
    rows       the same as numbered rows, spread over the cluster
    plan       where each subscription should be, written back

The methods themselves are in `partitioning`; here they find the rows that they ask. Only this package and
`partitioning.job` import Spark.
"""
