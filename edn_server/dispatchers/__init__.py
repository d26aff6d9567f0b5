"""The dispatchers as this server calls them: registration, requests, where to place subscriptions.

May import `subscriptions` and `storage`.
"""
