"""Several dispatchers: leases, the feed of changes, reconciliation.

May import `routing`, `servers`, `store` and `subscriptions`; only `services`, `app` and `api` import it.
"""
