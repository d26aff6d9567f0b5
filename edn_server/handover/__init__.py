"""Migration of a subscription between servers: arrivals on the new one, departures on the old one.

May import `ingest` and the packages below it.
"""
