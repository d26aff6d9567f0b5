"""Moves subscriptions between servers: choice, move, hand-over, advice when to repartition.

May import `routing`, `servers`, `store` and `subscriptions`.
"""
