"""HTTP routes of a server: msgpack for dispatchers, JSON for subscribers and operators.

May import every package of the server; only `app` and `services` import it.
"""
