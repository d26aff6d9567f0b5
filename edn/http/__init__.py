"""HTTP for both services: error responses, request limits, clients, the policy for sinks.

May import `edn.errors` and `edn.formats`.
"""
