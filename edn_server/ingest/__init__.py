"""What the dispatchers send becomes notifications: frames, control records, replays, undecided matches.

May import `outbox`, `subscriptions` and `storage`.
"""
