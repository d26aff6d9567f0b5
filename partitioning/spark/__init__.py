"""Offline partitioning on Spark: everything that needs a session, and nothing that decides.

    session    a session with the settings that this code relies on
    snapshot   subscriptions as they are stored, validated by name and type
    packing    from its rows to numbered chunks
    rows       the chunks, spread over the cluster, as the methods ask them

The methods themselves are in `partitioning`; here they find the rows that they ask. Only this package and
`partitioning.planner` import Spark.
"""
