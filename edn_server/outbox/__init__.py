"""Notifications that wait: rows of matches, buffered rows, batches for one POST, bodies.

May import `subscriptions` and `storage`.
"""
