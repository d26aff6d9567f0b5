"""Answers questions about delivery, one event, and the process: status, explanation, trace, metrics.

May import `delivery`, `ingest` and the packages below them; not `api`.
"""
