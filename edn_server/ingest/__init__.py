"""Turns frames, control records and replays into notifications, and decides undecided matches.

May import `outbox`, `subscriptions` and `storage`.
"""
