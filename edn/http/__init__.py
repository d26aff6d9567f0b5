"""HTTP on both sides: ASGI plumbing, limits of requests, the clients of the services, the policy for sinks.

Shared by dispatcher and server; knows neither. May import `edn.errors` and `edn.formats`.
"""
