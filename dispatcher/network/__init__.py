"""Several dispatchers on one directory: who is there, what others change, logs that are taken over.

May import `auth`, `rebalance`, `routing`, `servers`, `store` and `subscriptions`; `services` and `api` import
it.
"""
