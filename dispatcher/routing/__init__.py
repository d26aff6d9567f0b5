"""The routing table: which servers an event goes to, and the precision of their summaries.

May import `store`.
"""
