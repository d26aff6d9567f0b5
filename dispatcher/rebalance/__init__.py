"""Migrates subscriptions between servers: selection, move, hand-over, proposals of repartitions.

May import `routing`, `servers`, `store` and `subscriptions`.
"""
