"""Chooses servers for subscriptions, online and offline.

    placement, online, similarity, boxes    online placement of one subscription; used by the services
    rows, contents, selection, binning      queries over all subscriptions, on one machine or on Spark
    split, clustering, mincut, methods      offline partitioning of all subscriptions
    survey, report                          load, volume and hit ratio of a partitioning
    spark, planner, command, job            the Spark job: from a snapshot to a plan
    repartitioning                          `edn repartition`: plans for a running network, and applies them
    space                                   volumes of rectangles with infinite sides

The services import `online` and nothing else. Only `spark` and `planner` import Spark. Nothing here imports
a service.
"""
