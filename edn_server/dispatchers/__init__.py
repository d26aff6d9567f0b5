"""Client of the dispatchers: registration, requests, placement hints.

May import `subscriptions` and `storage`.
"""
