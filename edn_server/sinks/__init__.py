"""What can be notified, by scheme, and what sending to them needs: consent, names, fair shares, streams.

May import `outbox`, `subscriptions` and `storage`.
"""
