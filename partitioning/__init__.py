"""Which server hosts which subscription.

`online` holds the placement policies that decide one subscription at a time, as it arrives; the dispatcher
imports those. Offline partitioning of a whole snapshot gets modules of its own, and only they may import
Spark. Nothing here imports a service.
"""
