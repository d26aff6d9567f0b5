"""The HTTP routes of a server: msgpack for dispatchers, JSON for subscribers and operators.

May import every package here; nothing but `app` imports it.
"""
