"""Sinks by URL scheme, consent, name resolution, fair shares of attempts, streams.

May import `outbox`, `subscriptions` and `storage`.
"""
