"""Authentication and authorization: API keys, the guard of all routes, quotas, browser checks, audit.

May import `store`.
"""
