"""The data folder and all SQL: tables, named queries, and the thread that writes.

May import `policies` and `edn`.
"""
