"""Runs a service process: settings, logs, clock, disk space, the writer of SQLite files, metrics.

Shared by dispatcher and server; knows neither. May import `edn.errors`, `edn.formats` and `edn.http`.
"""
