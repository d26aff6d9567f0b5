"""Which server hosts which subscription.

    placement, online, similarity, boxes    one subscription at a time, as it arrives; the services' part
    rows, contents, selection, binning      questions about all subscriptions, wherever they lie
    split, clustering, centroids, mincut,
    methods                                 partitioning all of them at once
    survey, report                          what a partitioning amounts to
    spark, planner, command, job            the same on Spark, from a snapshot to a plan
    repartitioning                          `edn repartition`: from a running network to a plan, and back
    space                                   volumes of rectangles with infinite sides

The services import `online` and nothing else. Only `spark` and `planner` import Spark. Nothing here imports
a service.
"""
