"""Explains routing and matching, traces events, and provides the figures of the dashboard.

May import `routing`, `servers`, `store`, `subscriptions` and `tuning`.
"""
