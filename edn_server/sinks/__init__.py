"""Sinks by URL scheme, and their needs: consent, name resolution, fair shares, streams.

May import `outbox`, `subscriptions` and `storage`.
"""
