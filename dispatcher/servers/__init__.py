"""The servers of the network: registration, placement, the stream of log records to each of them.

May import `routing` and `store`.
"""
