"""The subscriptions of this server: stored durably, indexed by topic in memory, counted.

May import `storage`.
"""
