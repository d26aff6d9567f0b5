"""Explains and shows: why an event is routed, what happened to it, figures and maps of the dashboard.

May import `routing`, `servers`, `store`, `subscriptions` and `tuning`.
"""
