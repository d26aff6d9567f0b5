"""Turns messages of dispatchers into notifications: frames, control records, replays, undecided matches.

May import `outbox`, `subscriptions` and `storage`.
"""
