"""Topics and subscriptions: requests, installation on servers, life cycle, subtrees, replay.

May import `auth`, `routing`, `servers` and `store`.
"""
