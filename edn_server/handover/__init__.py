"""A subscription that moves between servers: arrivals here, departures from here.

May import `ingest` and the packages below it.
"""
