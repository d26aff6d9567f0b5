"""The routing table, which finds the servers of an event, and the precision of their summaries.

May import `store`.
"""
