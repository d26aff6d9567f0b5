"""Subscriptions of this server: stored durably, indexed per topic in memory, counted.

May import `storage`.
"""
