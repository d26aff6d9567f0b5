"""Status of delivery and of the process, explanations and traces of events, metrics.

May import `delivery`, `ingest` and the packages below them; not `api`.
"""
